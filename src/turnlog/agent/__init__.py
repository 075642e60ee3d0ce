"""The agent: a ReAct loop that keeps its session as an event log."""

from turnlog.agent.approval import ApprovalRequest, ask_on_terminal
from turnlog.agent.loop import AgentBusy, ReactLoopAgent, Turn, TurnResult
from turnlog.agent.tools import InvalidTool, Tool, ToolAborted, tool

__all__ = [
    "AgentBusy",
    "ApprovalRequest",
    "InvalidTool",
    "ReactLoopAgent",
    "Tool",
    "ToolAborted",
    "Turn",
    "TurnResult",
    "ask_on_terminal",
    "tool",
]
