"""Texts of the kinds that sessions hold, by name: what estimates are judged by."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_ROOT = Path(__file__).parents[3]

_ENGLISH = """
The migration ran for about twenty minutes before the first alarm went off, and by then half of the
orders placed that morning had already been copied. Nobody wanted to stop it half way. We decided to
let it finish, keep the old tables read-only, and compare the two sides row by row in the evening.
What we found was less dramatic than we had feared: eleven rows differed, all of them because a
customer had changed an address while the copy was under way. Please don't touch the schema again
until the comparison has been repeated, and tell support which customers are affected.
"""

_CHINESE = """
今天下午我们讨论了新的会话存储设计,决定把所有事件写入只追加的日志,并在每次刷新时同步到磁盘。
数据库的表结构不能再修改,因为生产环境已经依赖它了。如果模型的上下文窗口不够大,就先把较早的工具结果裁剪掉,
再让模型写一份摘要。明天上午请先运行全部测试,然后把结果发给负责发布的同事。
"""

_JAPANESE = """
昨日の会議では、セッションのログをどのように保存するかについて話し合いました。すべてのイベントは追記専用のログに
書き込まれ、あとから変更されることはありません。コンテキストが足りなくなったときは、古いツールの結果を短くしてから、
モデルに要約を書いてもらいます。データベースのスキーマは変更しないでください。
"""

_EMOJI = "😀😂🔥🎉🚀💡📁📝🐛✨🔧🤖👀💻🌍🍕🎸🐙🦊🌵🏔🚲🧩🎯🔒📦🧪🗂🕰🌈"


def _bytes(length: int) -> bytes:
    return b"".join(sha256(bytes([n % 256, n // 256])).digest() for n in range(length // 32 + 1))


def _rows(count: int) -> list[dict[str, object]]:
    return [
        {
            "id": 1000 + n * 37,
            "path": f"src/billing/invoice_{n % 7}.py",
            "status": "modified" if n % 3 else "added",
            "lines": [n, n * 11 % 400],
            "reviewed": n % 2 == 0,
        }
        for n in range(count)
    ]


def _log(count: int) -> str:
    return "\n".join(
        f"2026-11-{n % 28 + 1:02}T09:{n % 60:02}:{n * 7 % 60:02}.{n * 13 % 1000:03}Z INFO "
        f"[worker-{n % 8}] request completed id={n * 2654435761 % 2**32:08x} took={n * 31 % 900}ms"
        for n in range(count)
    )


SAMPLES: dict[str, str] = {
    "english": _ENGLISH,
    "documentation": (_ROOT / "docs" / "agents.md").read_text(encoding="utf-8"),
    "code": (_ROOT / "src" / "turnlog" / "surface.py").read_text(encoding="utf-8"),
    "json": json.dumps(_rows(40)),
    "json, indented": json.dumps(_rows(40), indent=2),
    "chinese": _CHINESE,
    "japanese": _JAPANESE,
    "base64": b64encode(_bytes(6000)).decode(),
    "hex": _bytes(3000).hex(),
    "emoji": _EMOJI * 4,
    "log": _log(60),
}
