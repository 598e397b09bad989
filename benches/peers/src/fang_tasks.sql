-- What fang's own migration makes; it runs that only through diesel.
CREATE EXTENSION IF NOT EXISTS "uuid-ossp";
CREATE TYPE fang_task_state AS ENUM ('new', 'in_progress', 'failed', 'finished', 'retried');
CREATE TABLE fang_tasks (
    id UUID PRIMARY KEY DEFAULT uuid_generate_v4(),
    metadata JSONB NOT NULL,
    error_message TEXT,
    state fang_task_state DEFAULT 'new' NOT NULL,
    task_type TEXT DEFAULT 'common' NOT NULL,
    uniq_hash TEXT,
    retries INTEGER DEFAULT 0 NOT NULL,
    scheduled_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX fang_tasks_state_index ON fang_tasks (state);
CREATE INDEX fang_tasks_type_index ON fang_tasks (task_type);
CREATE INDEX fang_tasks_scheduled_at_index ON fang_tasks (scheduled_at);
CREATE INDEX fang_tasks_uniq_hash ON fang_tasks (uniq_hash);
