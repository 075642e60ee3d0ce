"""Workers: any number of processes that run whatever waits in the inboxes of a store."""

from turnlog.worker.reports import Ran, Report, Skipped, Tally
from turnlog.worker.worker import AgentFor, Worker

__all__ = ["AgentFor", "Ran", "Report", "Skipped", "Tally", "Worker"]
