// What an Automerge document holds, down to the type and bits of every value, and whether
// two are alike.
import * as A from '@automerge/automerge'

// A value as the library's own memory has it; what has no identity in JavaScript by itself
// (dates, bytes) as something that has.
const plain = value => {
  if (value instanceof Date) return ['date', value.getTime()]
  if (value instanceof Uint8Array) return ['bytes', ...value]
  return value
}

// Every object with every value of every key and element, conflicting ones too. `named`:
// with the operations that made them.
export const contentOf = (doc, { named = true } = {}) => {
  const backend = A.getBackend(doc)
  const numbers = new Map()
  const waiting = [['map', '_root']]
  const name = id => {
    if (named) return id
    if (!numbers.has(id)) numbers.set(id, numbers.size)
    return numbers.get(id)
  }
  const objects = []
  const values = (id, at) => backend.getAll(id, at).map(([type, value, by]) => {
    if (['map', 'list', 'text', 'table'].includes(type)) {
      if (type !== 'table') waiting.push([type, value]) // Which cannot be read.
      return [type, name(value)]
    }
    return named ? [type, plain(value), by] : [type, plain(value)]
  })
  while (waiting.length > 0) {
    const [type, id] = waiting.shift()
    if (type === 'map') {
      objects.push([type, backend.keys(id).sort().map(key => [key, values(id, key)])])
      continue
    }
    const elements = []
    for (let at = 0; at < backend.length(id); at++) elements.push(values(id, at))
    const marks = backend.marks(id).map(({ name, value, start, end }) => [name, plain(value), start, end])
      .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[2] - b[2]))
    objects.push([type, elements, type === 'text' ? backend.text(id) : null, marks])
  }
  return objects
}

// The first place where two values differ by type or bits; or null.
export const difference = (a, b, path = '') => {
  if (Object.is(a, b)) return null
  if (!Array.isArray(a) || !Array.isArray(b)) return `${path}: ${String(a)} became ${String(b)}`
  if (a.length !== b.length) return `${path}: ${a.length} entries became ${b.length} (${JSON.stringify(a, shown)} and ${JSON.stringify(b, shown)})`.slice(0, 400)
  for (let i = 0; i < a.length; i++) {
    const found = difference(a[i], b[i], `${path}/${i}`)
    if (found !== null) return found
  }
  return null
}
const shown = (_, value) => (typeof value === 'bigint' ? `${value}n` : value)

const hashesOf = doc => A.topoHistoryTraversal(doc).sort()

// How two documents differ, or null: content, conflicts, marks, heads, history.
export const unlike = (a, b) =>
  difference([...A.getHeads(a)].sort(), [...A.getHeads(b)].sort(), 'heads') ??
  difference(hashesOf(a), hashesOf(b), 'history') ??
  difference(contentOf(a), contentOf(b), 'content')

// A document that has heard all rows, by an actor of its own.
export const built = (rows, actor) => rows.reduce((doc, row) => A.loadIncremental(doc, row), A.init({ actor }))

// Paths to all texts and lists that are shown; the library cannot be asked for what is below
// an empty key.
export const sequences = doc => {
  const found = []
  const walk = (value, path) => {
    if (typeof value === 'string') found.push({ path, text: true })
    else if (Array.isArray(value)) {
      found.push({ path, text: false })
      value.forEach((child, at) => walk(child, [...path, at]))
    } else if (value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
      for (const key of Object.keys(value)) if (key !== '') walk(value[key], [...path, key])
    }
  }
  walk(doc, [])
  return found
}
