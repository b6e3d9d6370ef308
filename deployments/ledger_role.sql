-- A role that can add to the ledger and change nothing in it, for server, worker and deploy step.
--
--   psql --set=role=privsyn_worker --set=password="$(cat FILE)" --file=deployments/ledger_role.sql DATABASE_URL
--
-- Run it as the ledger's owner, after `privsyn ledger create`, and after every upgrade; twice is once.  The role owns a
-- schema of its own for the history of Prefect's server, which it may change.
\set ON_ERROR_STOP on
BEGIN;
SELECT format('CREATE ROLE %I LOGIN', :'role')
WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = :'role') \gexec
ALTER ROLE :"role" PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE;
SELECT format('CREATE SCHEMA IF NOT EXISTS prefect AUTHORIZATION %I', :'role') \gexec
SELECT format('ALTER ROLE %I IN DATABASE %I SET search_path = prefect, public', :'role', current_database()) \gexec
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM :"role";
GRANT USAGE ON SCHEMA public TO :"role";
GRANT SELECT, INSERT ON datasets, entries, periods, marks TO :"role";
-- Each of these is one row: how many there are, and the last hash.  A writer locks and moves it.
GRANT SELECT, UPDATE ON ledger, period_chain, mark_chain TO :"role";
COMMIT;
