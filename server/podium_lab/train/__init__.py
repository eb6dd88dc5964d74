"""Learning to lead a team: GRPO for the conductor, evolution for the coordinator (TRINITY).

What is trained here is scored by the server's own parser and executor and asked with the server's
own prompts, so that training and serving cannot drift apart. The server works without this folder.
"""
