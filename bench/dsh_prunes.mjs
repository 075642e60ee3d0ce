// DeepSeek Harness: single-node replacements at random places of a surface of n, deriving after each.
// usage, in a folder that has it installed: node dsh_prunes.mjs N PRUNES
import { performance } from 'node:perf_hooks'
import { pathToFileURL } from 'node:url'

const at = process.cwd() + '/node_modules/@deepseek-ai/dsh-session/lib/index.js'
const { Session, SessionId } = await import(pathToFileURL(at))
const [n, prunes] = process.argv.slice(2).map(Number)
const message = (id) => ({
  id,
  role: 'user',
  content: [{ type: 'text', text: `message number ${id}` }],
  source: { kind: 'user' },
})
const session = Session.create(SessionId('prunes'))
for (let i = 0; i < n; i++) session.append('user/message', message(`m${i}`), { surfaceOp: 'append' })
session.deriveMessages()
// every 7919th node, round and round: scattered, each once
const nodes = [...session.surface.nodes]
const start = performance.now()
for (let i = 0; i < prunes; i++) {
  const node = nodes[(i * 7919) % n]
  const surfaceOp = { op: 'replace', start: node, end: node }
  session.append('user/message', message(`p${i}`), { surfaceOp, sourceEventSeqs: [node] })
  session.deriveMessages()
}
console.log(JSON.stringify({ usEach: ((performance.now() - start) / prunes) * 1000 }))
