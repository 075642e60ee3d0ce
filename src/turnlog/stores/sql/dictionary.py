"""What payloads usually say: the zstd dictionary that stored payloads lean on, for ever.

A raw-content dictionary is a text from which matches may be copied. What is most usual stands
last, where the shortest references reach. These bytes are part of the format: rows that were
written with them can be read with nothing else. Better ones get a new constant and a new prefix
byte in `packing`; these stay.
"""

from __future__ import annotations

from typing import Final

_MESSAGES = (
    b'"content":[{"type":"image","mediaType":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAA"}],'
    b'{"type":"reasoning","text":"","signature":"","encrypted":""},'
    b'{"role":"developer","role":"system","content":[{"type":"text","text":"You are "}],'
    b'"source":{"kind":"system"}},"headerSeq":'
    b'{"header":{"config":{"provider":"anthropic","model":"claude-","provider":"openai",'
    b'"model":"gpt-","maxTokens":4096,"temperature":0.0},"system":"You are a helpful assistant.",'
    b'"tools":[{"name":"run_command","description":"","parameters":{"type":"object",'
    b'"properties":{"command":{"type":"string","description":"The "},"path":{"type":"string"},'
    b'"limit":{"type":"integer"}},"required":["path"],"additionalProperties":false}}]},'
    b'"reason":"initial"}'
    b'{"purpose":"step","digest":"sha256:","encoder":"openai@1","model":"","turn":1,"step":1,'
    b'"attempt":2}'
    b'{"turn":1,"step":1,"attempt":1,"firstSeq":1,"lastSeq":2,"failure":{"message":"",'
    b'"code":"transport","code":"rate-limit","status":429},"usage":{"inputTokens":1}}'
    b'{"turn":1,"step":1,"retry":1,"delayMs":500.0,"failure":{"message":"","code":"overloaded"}}'
    b'{"sessionId":"","relation":"subagent"}{"command":{"type":"steer","text":""}}'
    b'{"id":"","outcome":"granted"}{"id":"","outcome":"denied"}'
    b'{"id":"","toolName":"run_command","callId":"call_"}'
    b'{"compactionId":"","shadowedSeqs":[1,2,3],"summary":"","source":{"kind":"compact-checkpoint"}'
    b'{"callId":"call_","name":"run_command","arguments":"{}","turn":1,"step":1}'
    b'{"callId":"toolu_01","name":"read_file","arguments":"{\\"path\\":\\"src/main.py\\",'
    b'\\"command\\":\\"","turn":1,"step":2}'
)
_CHUNKS = (  # as `chunks` writes the words of a run
    b'block-start","index":0,"blockType":"reasoning"}}\0\0'
    b'reasoning-delta","index":0,"text":"\0"}}\0'
    b'block-end","index":0,"block":{"type":"reasoning","text":"\0","signature":"\0"}}}\0'
    b'block-start","index":1,"blockType":"text"}}\0\0'
    b'text-delta","index":1,"text":"\0"}}\0'
    b'block-end","index":1,"block":{"type":"text","text":"\0"}}}\0'
    b'block-start","index":2,"blockType":"tool-call"}}\0\0'
    b'tool-call-delta","index":2,"id":"call_","name":"","argumentsDelta":"\0"}}\0'
    b'block-end","index":2,"block":{"type":"tool-call","id":"call_'
    b'","name":"read_file","arguments":"'
    b'{\\"path\\":\\"\\"}"}}}\0\0'
    b'usage","usage":{"inputTokens":1000,"outputTokens":100,"cache'
    b'ReadTokens":1000,"cacheWriteTokens":0,"reasoningTokens":0}}}\0\0'
    b'finish","reason":{"kind":"tool-calls"}}}\0\0'
    b'block-start","index":0,"blockType":"text"}}\0\0'
    b'text-delta","index":0,"text":"\0"}}\0'
    b'block-end","index":0,"block":{"type":"text","text":"\0"}}}\0'
    b'block-start","index":1,"blockType":"tool-call"}}\0\0'
    b'tool-call-delta","index":1,"id":"call_","name":"","argumentsDelta":"\0"}}\0'
    b'block-end","index":1,"block":{"type":"tool-call","id":"call_'
    b'","name":"read_file","arguments":"'
    b'{\\"path\\":\\"\\"}"}}}\0\0'
    b'usage","usage":{"inputTokens":1000,"outputTokens":100}}}\0\0'
    b'finish","reason":{"kind":"tool-calls"}}}\0\0'
    b'{"turn":1,"step":1,"chunk":{"type":"\0'
    b'block-start","index":0,"blockType":"text"}}\0\0'
    b'text-delta","index":0,"text":"\0"}}\0'
    b'block-end","index":0,"block":{"type":"text","text":"\0"}}}\0'
    b'usage","usage":{"inputTokens":1000,"outputTokens":100}}}\0\0'
    b'finish","reason":{"kind":"stop"}}}\0\0'
)
_USUAL = (
    b'"}],"source":{"kind":"context"}}'
    b'"}],"source":{"kind":"tool","callId":"toolu_01'
    b'{"message":{"id":"01a","role":"tool","content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"tool","callId":"call_'
    b'"},"toolCallId":"call_'
    b'"isError":true},"turn":1,"step":1}'
    b'"isError":false},"turn":1,"step":1}'
    b'{"message":{"id":"01a","role":"assistant","content":[{"type":"reasoning","text":"'
    b'"},{"type":"tool-call","id":"call_","name":"read_file","arguments":"{\\"path\\":\\"'
    b'\\",\\"limit\\":200}"}],"source":{"kind":"model","provider":"","model":""}},'
    b'"turn":1,"step":1,"usage":{"inputTokens":1000,"outputTokens":100,"cacheReadTokens":1000}}'
    b'"}],"source":{"kind":"model"}},"turn":1,"step":1}'
    b'{"message":{"id":"01a","role":"assistant","content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"user"}}'
    b'{"id":"01a","role":"user","content":[{"type":"text","text":"'
)

# The beginning of a zstd dictionary: its number, the codes of literals and of matches as they are
# usual in messages of English and of source code, and the offsets to begin with. With these a
# message of 400 bytes is packed and unpacked in half the time, and carries no codes of its own.
_ENTROPY = bytes.fromhex(
    "37a430ec790be5703d10b0336d0e300c920ec3300cc3300c201b1efdfb1329a2b7c82d5fc55a99a4949d58eb"
    "d41f1518aaf18383d541ebd3d2d2d2d20e7b53354661630802f31301200c1291cb255349c117000480009e2f"
    "1a168d86d2602c864110c4302084a00c000800001000c829070100000000d40de5e3835389401a8b821c4751"
    "1c85986b0600000000010000000400000008000000"
)

V1: Final = _ENTROPY + _MESSAGES + _CHUNKS + _USUAL
