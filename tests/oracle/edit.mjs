// Edits of whatever a document holds.
import * as Y from 'yjs'
import { random } from './log.mjs'

// Types a document's roots, as the readers of the document do.
export const typed = (doc, types) => {
  for (const [name, kind] of types) {
    if (kind === 'map') doc.getMap(name)
    else if (kind === 'text') doc.getText(name)
    else if (kind === 'array') doc.getArray(name)
    else doc.getXmlFragment(name)
  }
  return doc
}

// The next position at or before `at` that is not inside of a surrogate pair: Yjs itself
// replaces a pair that is cut.
const outsidePair = (text, at) => {
  let left = at
  for (let item = text._start; item !== null && left > 0; item = item.right) {
    if (item.deleted || !item.countable) continue
    if (left < item.length && item.content.getRef() === 4) {
      const unit = item.content.str.charCodeAt(left)
      return unit >= 0xdc00 && unit <= 0xdfff ? at - 1 : at
    }
    left -= item.length
  }
  return at
}

// Edits of every root; the same seed makes the same edits on equal documents.
export const editAll = (doc, types, seed) => {
  const rand = random(seed)
  const pick = n => Math.floor(rand() * n)
  for (const [name, kind] of [...types, [' new', 'text']]) {
    for (let i = 0; i < 4; i++) {
      if (kind === 'map') {
        const map = doc.getMap(name)
        const keys = [...map.keys()].sort()
        if (keys.length > 0) map.set(keys[pick(keys.length)], { edit: i, a: seed })
        if (i === 2 && keys.length > 0) map.delete(keys[pick(keys.length)])
        map.set(`edit ${i}`, new Y.Text('nested'))
        continue
      }
      if (kind === 'text') {
        const text = doc.getText(name)
        text.insert(outsidePair(text, pick(text.length + 1)), `e${seed}-${i}`)
        const from = outsidePair(text, pick(text.length))
        const to = outsidePair(text, from + 3)
        if (to > from) text.delete(from, to - from)
        if (text.length > 3) {
          const from = outsidePair(text, pick(text.length - 2))
          text.format(from, outsidePair(text, from + 3) - from, { mark: i % 2 ? seed : null })
        }
        continue
      }
      const list = kind === 'array' ? doc.getArray(name) : doc.getXmlFragment(name)
      list.insert(pick(list.length + 1), kind === 'array' ? [i, { z: 1, a: 2 }] : [new Y.XmlElement('edit')])
      if (list.length > 2) list.delete(pick(list.length - 1), 1)
    }
  }
}
