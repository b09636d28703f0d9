"""The report: one HTML page from the summary frames of the jobs."""
