// What a Yjs document holds, down to the bits of every value, and whether two are alike.
import * as Y from 'yjs'

// The content of a shared type, whatever it is called by those who read it.
const typeOf = type => {
  const list = []
  for (let item = type._start; item !== null; item = item.right) {
    if (!item.deleted) pieces(item.content, list)
  }
  const keys = new Map()
  for (const key of [...type._map.keys()].sort()) {
    const item = type._map.get(key)
    if (!item.deleted) {
      const entry = []
      pieces(item.content, entry)
      keys.set(key, entry)
    }
  }
  return { list, keys }
}

const pieces = (content, to) => {
  const kind = content.constructor.name
  switch (content.getRef()) {
    case 4: // text: adjacent runs are one, a unit each
      for (const unit of content.str.split('')) to.push({ unit })
      break
    case 2: case 8:
      for (const value of content.arr) to.push({ kind, value })
      break
    case 3: to.push({ kind, value: content.content }); break
    case 5: to.push({ kind, value: content.embed }); break
    case 6: to.push({ kind, key: content.key, value: content.value }); break
    case 7: to.push({ kind: content.type.constructor.name, name: content.type.nodeName ?? content.type.hookName, type: typeOf(content.type) }); break
    case 9: to.push({ kind, guid: content.doc.guid, value: content.opts }); break
    default: throw new Error(`a living item holds ${kind}`)
  }
}

export const contentOf = doc => {
  const roots = new Map()
  for (const name of [...doc.share.keys()].sort()) {
    const root = typeOf(doc.share.get(name))
    if (root.list.length > 0 || root.keys.size > 0) roots.set(name, root)
  }
  return roots
}

// The first place where two values differ by type, bits or the order of keys; or null.
export const difference = (a, b, path = '') => {
  if (Object.is(a, b)) return null
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return `${path}: ${String(a)} became ${String(b)}`
  if (a.constructor !== b.constructor) return `${path}: ${a.constructor?.name} became ${b.constructor?.name}`
  if (a instanceof Map) return difference([...a], [...b], path)
  const [inA, inB] = [Object.keys(a), Object.keys(b)]
  if (inA.length !== inB.length) return `${path}: ${inA.length} entries became ${inB.length}`
  for (let i = 0; i < inA.length; i++) {
    if (inA[i] !== inB[i]) return `${path}: key ${inA[i]} became ${inB[i]}`
    const found = difference(a[inA[i]], b[inB[i]], `${path}/${inA[i]}`)
    if (found !== null) return found
  }
  return null
}

export const stateOf = doc => new Map([...Y.decodeStateVector(Y.encodeStateVector(doc))].sort((a, b) => a[0] - b[0]))
export const deletionsOf = doc => {
  const set = Y.createDeleteSetFromStructStore(doc.store)
  return new Map([...set.clients].sort((a, b) => a[0] - b[0]).map(([client, items]) => [client, items.map(i => [i.clock, i.len])]))
}

// How two documents differ, or null: content, state vector, deletions, nothing pending.
export const unlike = (a, b) => {
  for (const doc of [a, b]) {
    if (doc.store.pendingStructs !== null || doc.store.pendingDs !== null) return 'something is pending'
  }
  return difference(contentOf(a), contentOf(b), 'content') ??
    difference(stateOf(a), stateOf(b), 'state vector') ??
    difference(deletionsOf(a), deletionsOf(b), 'deletions')
}

export const built = (updates, clientID, options = {}) => {
  const doc = new Y.Doc(options)
  doc.clientID = clientID
  for (const update of updates) Y.applyUpdate(doc, update)
  return doc
}

// As `built`, in one transaction. Yjs removes redundant marks at the end of each, so what is
// left of them depends on where transactions end; so does not what a document holds.
export const builtAtOnce = (updates, clientID, type = () => {}) => {
  const doc = new Y.Doc()
  doc.clientID = clientID
  type(doc)
  doc.transact(() => { for (const update of updates) Y.applyUpdate(doc, update) })
  return doc
}

// Which type each root was used as: from what is in it, deleted or not.
export const rootTypes = doc => {
  const types = new Map()
  for (const [name, type] of doc.share) {
    let kind = type._map.size > 0 ? 'map' : 'text'
    for (let item = type._start; item !== null; item = item.right) {
      const ref = item.content.getRef()
      if (ref === 4 || ref === 5 || ref === 6) { kind = 'text'; break }
      if (ref === 7) kind = item.content.type instanceof Y.XmlElement || item.content.type instanceof Y.XmlText || item.content.type instanceof Y.XmlHook ? 'xml' : 'array'
      if (ref === 2 || ref === 3 || ref === 8 || ref === 9) { kind = 'array'; break }
    }
    types.set(name, kind)
  }
  return types
}
