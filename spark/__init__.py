"""Analysis of the replication logs with PySpark. Not built yet."""
