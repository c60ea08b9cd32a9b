// What readers of a document are shown.
import * as Y from 'yjs'

// The entries of a shared map have no order, and a sub-document is known by its guid.
const sorted = value => {
  if (value instanceof Y.Doc) return value.guid
  if (value instanceof Y.AbstractType) return sorted(value.toJSON())
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  return Object.fromEntries(Object.keys(value).sort().map(key => [key, sorted(value[key])]))
}

// Of a typed document, in the order of its roots.
export const shown = (doc, types) => [...types].map(([name, kind]) => sorted(
  kind === 'text' ? doc.getText(name).toDelta() : kind === 'xml' ? doc.getXmlFragment(name).toString() : doc.get(name).toJSON()))
