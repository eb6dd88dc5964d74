"""TRINITY (papers.md 2): a head that chooses worker and role, evolved on cached hidden states.

Only the head is evolved. The scales on the model's own singular values, which the paper evolves
beside it, would change the states themselves, so that none could be cached, and the engine has no
place for them: they are left out.

Nothing here needs numpy: what does is `learner.trinity_arena`, `trinity_evolve` and
`trinity_baselines`.
"""
