"""The engine of this machine's own models: one small supervisor, shared by every Podium process.

`client` starts it when it is first needed and holds it for as long as this process lives; `app`,
`models` and `child` are the supervisor; `llama` and `llama_server` are one kind of model server
that it runs. It knows nothing of workers, prompts or plans.
"""
