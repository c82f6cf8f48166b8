-- What a PostgreSQL needs before galleries are indexed there; compose.replicas.yaml runs it once.
CREATE EXTENSION IF NOT EXISTS vector;
