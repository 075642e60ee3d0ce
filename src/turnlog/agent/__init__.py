"""The agent: a ReAct loop that keeps its session as an event log."""

from turnlog.agent.approval import ApprovalRequest, ask_on_terminal
from turnlog.agent.loop import ReactLoopAgent
from turnlog.agent.recalling import recall_tool
from turnlog.agent.results import TurnResult
from turnlog.agent.tools import InvalidTool, Tool, ToolAborted, tool
from turnlog.agent.turn import AgentBusy, Turn

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
    "recall_tool",
    "tool",
]
