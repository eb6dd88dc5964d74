-- Rows as a Podium of format 1 wrote them, for the tests of what later ones make of them.

INSERT INTO blobs (sha, text) VALUES (
    '0f5f68fe7b1e4cad18ad1421970893611d8a071068756f2512849161b4c2a27f',
    'A file.'
);
INSERT INTO blobs (sha, text) VALUES (
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    '{"messages":[{"role":"system","text":"You check."},{"role":"user","text":"Check it."}]}'
);
INSERT INTO blobs (sha, text) VALUES (
    'b3906543d7edc3389be8ef99e0985c652a34a4e37b535422e90ab1829ec26dc7',
    'Neither.'
);
INSERT INTO blobs (sha, text) VALUES (
    '1e59f968e4cf921181be104348303357db3637f2c1a80cf6b1bc6e84bb958941',
    'Let me see.'
);

INSERT INTO runs (id, run_id, principal, parent_id, status, strategy, question, created_at, started_at, finished_at, answer, owner, lease_until, request, pool, data) VALUES (
    1,
    'aaaaaaaaaaaaaaaa',
    'local',
    NULL,
    'finished',
    'conductor',
    'Which is longer?
東京',
    1000.0,
    1001.0,
    1009.5,
    'Neither.',
    NULL,
    NULL,
    '{"strategy":"conductor","conductor":"solver","rounds":2,"depth":1,"workers":["solver","checker"],"exclude":[],"local_only":false,"max_seconds":60.0,"follow_up":"f0f0f0f0f0f0f0f0","earlier":"What came before."}',
    '[{"name":"solver","kind":"openai","model":"solver-1","where":"hosted","context_window":4096,"max_output_tokens":2048,"price":{"input":1.0,"output":2.0,"cached_input":null,"cache_write":null},"good_at":"","role":"","parallel":4},{"name":"checker","kind":"local","model":"checker-1","where":"local","context_window":8192,"max_output_tokens":2048,"price":null,"good_at":"","role":"You check.","parallel":4}]',
    '{"fence":"f3nc3","seed":7,"worked_s":8.5,"resumed_at":null,"answer_step":1,"error":null,"notes":["A note."]}'
);
INSERT INTO runs (id, run_id, principal, parent_id, status, strategy, question, created_at, started_at, finished_at, answer, owner, lease_until, request, pool, data) VALUES (
    2,
    'bbbbbbbbbbbbbbbb',
    'local',
    'aaaaaaaaaaaaaaaa',
    'failed',
    'single',
    'Inner?',
    1003.0,
    1003.0,
    NULL,
    NULL,
    NULL,
    NULL,
    '{"strategy":"single","conductor":null,"rounds":1,"depth":0,"workers":[],"exclude":[],"local_only":false,"max_seconds":null,"follow_up":null,"earlier":""}',
    '[{"name":"solver","kind":"openai","model":"solver-1","where":"hosted","context_window":4096,"max_output_tokens":2048,"price":{"input":1.0,"output":2.0,"cached_input":null,"cache_write":null},"good_at":"","role":"","parallel":4}]',
    '{"fence":"1nn3r","seed":8,"worked_s":0.0,"resumed_at":null,"answer_step":null,"error":{"worker":"solver","code":"timeout","message":"slow","status":504},"notes":[]}'
);
INSERT INTO runs (id, run_id, principal, parent_id, status, strategy, question, created_at, started_at, finished_at, answer, owner, lease_until, request, pool, data) VALUES (
    3,
    'cccccccccccccccc',
    'local',
    NULL,
    'running',
    'conductor',
    'Who knows?',
    2000.0,
    2000.0,
    NULL,
    NULL,
    '0123456789abcdef',
    2030.0,
    '{"strategy":"conductor","conductor":null,"rounds":1,"depth":0,"workers":[],"exclude":[],"local_only":false,"max_seconds":null,"follow_up":null,"earlier":""}',
    '[{"name":"solver","kind":"openai","model":"solver-1","where":"hosted","context_window":4096,"max_output_tokens":2048,"price":{"input":1.0,"output":2.0,"cached_input":null,"cache_write":null},"good_at":"","role":"","parallel":4}]',
    '{"fence":"w41t","seed":9,"worked_s":0.0,"resumed_at":2000.0,"answer_step":null,"error":null,"notes":[]}'
);

INSERT INTO files (run_id, position, name, bytes, sha) VALUES (
    'aaaaaaaaaaaaaaaa',
    0,
    'a.txt',
    7,
    '0f5f68fe7b1e4cad18ad1421970893611d8a071068756f2512849161b4c2a27f'
);

INSERT INTO rounds (run_id, number, source, steps, proposal) VALUES (
    'aaaaaaaaaaaaaaaa',
    0,
    'model',
    2,
    '{"next":{"steps":[{"worker":"podium","subtask":"Solve it.","access":[]},{"worker":"checker","subtask":"Check it.","access":"all"}],"first":0},"source":"model","raw_text":"model_id = ...","worker":"solver","failed":[],"prompt_hash":"abc","cuts":[{"part":"question","given":10,"sent":5}],"refused":["Not a plan."]}'
);
INSERT INTO rounds (run_id, number, source, steps, proposal) VALUES (
    'aaaaaaaaaaaaaaaa',
    1,
    'model',
    0,
    '{"next":{"step":1},"source":"model","raw_text":"","worker":"","failed":[],"prompt_hash":"","cuts":[],"refused":[]}'
);

INSERT INTO steps (run_id, number, version, round, worker, planned_worker, status, prompt, nested_run, data) VALUES (
    'aaaaaaaaaaaaaaaa',
    0,
    0,
    0,
    'podium',
    'podium',
    'finished',
    '',
    'bbbbbbbbbbbbbbbb',
    '{"subtask":"Solve it.","access":[],"reply":"Both.","finish_reason":null,"failures":[],"cuts":[],"template":"","final":false,"window":null,"usage":{"input_tokens":3,"cached_tokens":0,"output_tokens":4,"reasoning_tokens":0,"cost_usd":0.5},"seconds":1.5,"started_at":1003.0}'
);
INSERT INTO steps (run_id, number, version, round, worker, planned_worker, status, prompt, nested_run, data) VALUES (
    'aaaaaaaaaaaaaaaa',
    1,
    0,
    0,
    'checker',
    'checker',
    'stale',
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    NULL,
    '{"subtask":"Check.","access":[0],"reply":"Both?","finish_reason":null,"failures":[],"cuts":[],"template":"","final":false,"window":[4000,1.25],"usage":{"input_tokens":0,"cached_tokens":0,"output_tokens":0,"reasoning_tokens":0,"cost_usd":0.0},"seconds":0.0,"started_at":0.0}'
);
INSERT INTO steps (run_id, number, version, round, worker, planned_worker, status, prompt, nested_run, data) VALUES (
    'aaaaaaaaaaaaaaaa',
    1,
    1,
    0,
    'solver',
    'checker',
    'finished',
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    NULL,
    '{"subtask":"Check it.","access":"all","reply":"Neither.","finish_reason":"stop","failures":[{"worker":"checker","code":"overloaded","message":"busy","status":529}],"cuts":[{"part":"step:0","given":100,"sent":50}],"template":"t3mp","final":true,"window":[4000,1.25],"usage":{"input_tokens":30,"cached_tokens":10,"output_tokens":5,"reasoning_tokens":2,"cost_usd":null},"seconds":2.5,"started_at":1005.0}'
);

INSERT INTO calls (id, call_id, run_id, round, step, version, worker, model, status, prompt, reply, request_id, finish_reason, started_at, seconds, input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost_usd, data) VALUES (
    1,
    'call-1',
    'aaaaaaaaaaaaaaaa',
    0,
    NULL,
    NULL,
    'solver',
    'solver-1',
    'failed',
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    NULL,
    NULL,
    NULL,
    1001.0,
    0.5,
    0,
    0,
    0,
    0,
    0.0,
    '{"request":{},"reasoning":null,"served_by":"","error":{"worker":"solver","code":"overloaded","message":"busy","status":529}}'
);
INSERT INTO calls (id, call_id, run_id, round, step, version, worker, model, status, prompt, reply, request_id, finish_reason, started_at, seconds, input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost_usd, data) VALUES (
    2,
    'call-2',
    'aaaaaaaaaaaaaaaa',
    0,
    1,
    1,
    'solver',
    'solver-1',
    'finished',
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    'b3906543d7edc3389be8ef99e0985c652a34a4e37b535422e90ab1829ec26dc7',
    'req-2',
    'stop',
    1005.0,
    2.5,
    30,
    10,
    5,
    2,
    NULL,
    '{"request":{"model":"solver-1","max_output_tokens":100},"reasoning":"1e59f968e4cf921181be104348303357db3637f2c1a80cf6b1bc6e84bb958941","served_by":"solver-1-0613","error":null}'
);
INSERT INTO calls (id, call_id, run_id, round, step, version, worker, model, status, prompt, reply, request_id, finish_reason, started_at, seconds, input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost_usd, data) VALUES (
    3,
    'call-3',
    'bbbbbbbbbbbbbbbb',
    0,
    0,
    0,
    'solver',
    'solver-1',
    'running',
    'fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4',
    NULL,
    NULL,
    NULL,
    1003.0,
    0.0,
    1,
    0,
    0,
    0,
    0.25,
    '{"request":{},"reasoning":null,"served_by":"","error":null}'
);

INSERT INTO search (rowid, text) VALUES (1048576, 'Which is longer?
' || char(31) || '東' || char(31) || char(31) || '京' || char(31) || '
Neither.');
INSERT INTO search (rowid, text) VALUES (1048577, 'Solve it.
Both.');
INSERT INTO search (rowid, text) VALUES (1048578, 'Check it.
Neither.');
INSERT INTO search (rowid, text) VALUES (2097152, 'Inner?
');
INSERT INTO search (rowid, text) VALUES (3145728, 'Who knows?
');
