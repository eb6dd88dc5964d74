-- Rows as a Podium of format 3 wrote them, for the tests of what later ones make of them.

INSERT INTO tasks (task_id, principal, tool, run_id, created_at, updated_at, expires_at, outcome, data)
VALUES (
    't4sk-done', 'local', 'orchestrate', 'aaaaaaaaaaaaaaaa', 1000.0, 1009.5, 87400.0,
    '{"status":"completed","message":"Run aaaaaaaaaaaaaaaa: finished.","since":1009.5,"result":{"content":[{"type":"text","text":"Neither."}],"isError":false,"resultType":"complete"},"error":null,"requests":{}}',
    '{"asks":true,"cancelled":false,"answered":["step-0"],"declined":[]}'
);
INSERT INTO tasks (task_id, principal, tool, run_id, created_at, updated_at, expires_at, outcome, data)
VALUES (
    't4sk-open', 'local', 'run_step', 'cccccccccccccccc', 2000.0, 2001.0, 88400.0,
    NULL,
    '{"asks":false,"cancelled":true,"answered":["step-0","plan"],"declined":["plan"]}'
);
