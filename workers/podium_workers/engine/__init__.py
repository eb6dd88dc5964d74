"""The engine of this machine's own models: one small supervisor, shared by every Podium process.

`client` starts it when it is first needed and holds it for as long as this process lives; `app`,
`models`, `servers` and `child` are the supervisor. It runs two kinds of model servers: `llama` with
`llama_server`, whose calls pass through it, and `vllm` with `vllm_server`, which are called
directly while it holds them. It knows nothing of workers, prompts or plans.
"""
