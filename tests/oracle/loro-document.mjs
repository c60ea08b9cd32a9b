// What a Loro document holds, down to the bits of every value, and whether two are alike.
import { decodeImportBlobMeta, isContainer, LoroDoc } from 'loro-crdt'
import { difference } from './document.mjs'

const STYLES = {
  bold: { expand: 'after' }, link: { expand: 'none' }, note: { expand: 'both' }, before: { expand: 'before' }
}
const KINDS = ['Counter', 'List', 'Map', 'MovableList', 'Text', 'Tree']

// An empty replica.
export const replica = peer => {
  const doc = new LoroDoc()
  doc.configTextStyle(STYLES)
  doc.setPeerId(peer)
  return doc
}

// The document of those rows, as a client has it. Rows may be in any order; a snapshot goes
// first, and by itself: in a batch a shallow one would wait for what it leaves out.
export const built = (rows, peer) => {
  const doc = replica(peer)
  const modes = rows.length > 1 ? rows.map(row => decodeImportBlobMeta(row, false).mode) : ['update']
  const snapshot = modes.findIndex(mode => mode.includes('snapshot'))
  const statuses = snapshot < 0 ? [] : [doc.import(rows[snapshot])]
  const others = rows.filter((_, nth) => nth !== snapshot)
  if (others.length > 0) statuses.push(doc.importBatch(others))
  if (statuses.some(status => (status.pending?.size ?? 0) > 0)) throw new Error('something is pending')
  return doc
}

// All roots, also those of one name and several types: in the document's value they hide
// each other.
export const roots = doc => {
  const names = Object.keys(doc.getShallowValue()).sort()
  return names.flatMap(name => KINDS.map(kind => `cid:root-${name}:${kind}`))
    .filter(id => doc.hasContainer(id)).map(id => doc.getContainerById(id)).filter(it => it !== undefined)
}

const entry = value => isContainer(value) ? containerOf(value) : { value }
const sorted = pairs => new Map([...pairs].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
// Keys have no order in Loro.
const ordered = value => {
  if (Array.isArray(value)) return value.map(ordered)
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  return sorted(Object.entries(value).map(([key, inner]) => [key, ordered(inner)]))
}

const holds = container => {
  switch (container.kind()) {
    case 'Text': // adjacent runs are one, a unit each
      return container.toDelta().flatMap(run =>
        [...run.insert].map(unit => ({ unit, marks: ordered(run.attributes ?? {}) })))
    case 'Map':
      return sorted(container.entries().map(([key, value]) =>
        [key, { by: container.getLastEditor(key), entry: ordered(entry(value)) }]))
    case 'List':
      return container.toArray().map((value, at) => ({ id: container.getIdAt(at), entry: ordered(entry(value)) }))
    case 'MovableList':
      return container.toArray().map((value, at) => ({
        created: container.getCreatorAt(at), moved: container.getLastMoverAt(at), edited: container.getLastEditorAt(at),
        entry: ordered(entry(value))
      }))
    case 'Tree':
      return sorted(container.getNodes({ withDeleted: false }).map(node => [node.id, {
        parent: node.parent()?.id, index: node.index(), fraction: node.fractionalIndex(), moved: node.getLastMoveId(),
        data: containerOf(node.data)
      }]))
    case 'Counter': return container.value
    default: throw new Error(`a container of kind ${container.kind()}`)
  }
}
const containerOf = container => ({ id: container.id, holds: holds(container) })
const isEmpty = value => value === 0 ? Object.is(value, 0) : value.size === 0 || value.length === 0

export const contentOf = doc => roots(doc).map(containerOf).filter(it => !isEmpty(it.holds))

const heads = doc => doc.frontiers().map(id => `${id.counter}@${id.peer}`).sort()
export const versionOf = doc => sorted(doc.version().toJSON())

// All that is compared of a document; looking at it takes longer than most of what is done to it.
export const pictureOf = doc => ({ version: versionOf(doc), heads: heads(doc), content: contentOf(doc) })

// How two documents, or pictures of such, differ, or null.
export const unlike = (a, b) => {
  const [one, other] = [a, b].map(it => it instanceof LoroDoc ? pictureOf(it) : it)
  return difference(one.version, other.version, 'version') ??
    difference(one.heads, other.heads, 'heads') ??
    difference(one.content, other.content, 'content')
}

// Whether a replica has everything that the other's history does not reach back to.
export const reaches = (version, doc) => {
  const has = version.toJSON()
  const needed = new Map(doc.shallowSinceVV().toJSON())
  for (const { peer, counter } of doc.shallowSinceFrontiers()) needed.set(peer, Math.max(needed.get(peer) ?? 0, counter + 1))
  return [...needed].every(([peer, end]) => (has.get(peer) ?? 0) >= end)
}

// One hears what the other has and it has not.
export const tell = (from, to) => {
  const status = to.import(from.export({ mode: 'update', from: to.oplogVersion() }))
  if (status.pending !== null && status.pending !== undefined && status.pending.size > 0) throw new Error('something is pending')
}
export const sync = (a, b) => { tell(a, b); tell(b, a) }
