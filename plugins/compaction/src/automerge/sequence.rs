//! Computes the order of a list: each element follows the one that it was inserted after, and of
//! several such elements the newest comes first.

use std::collections::HashMap;

use automerge::legacy::MarkData;

/// An element to be ordered.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The index that identifies the element.
    pub index: u32,
    /// The element that it was inserted after; none: the head.
    pub origin: Option<u32>,
    /// The counter of the inserting operation.
    pub counter: u64,
    /// The actor of the inserting operation.
    pub actor: &'a [u8],
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Element<T> {
    /// A value.
    Value(T),
    /// The beginning of a mark, with its operation's id.
    Begin((u64, u32), MarkData),
    /// The end of the mark whose operation's counter is one less, and whether it expands.
    End((u64, u32), bool),
}

/// The elements in their order, without those that follow a missing element.
pub fn order(nodes: &[Node<'_>]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut youngest_last: Vec<usize> = (0..nodes.len()).collect();
    youngest_last.sort_by_key(|&at| (nodes[at].counter, nodes[at].actor));
    let place: HashMap<u32, usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.index, at)).collect();

    // The first that follows each element, and the next one that follows the same.
    let mut first = vec![NONE; nodes.len()];
    let mut next = vec![NONE; nodes.len()];
    let mut head = NONE;
    for at in youngest_last {
        let slot = match nodes[at].origin {
            None => &mut head,
            Some(origin) => match place.get(&origin) {
                Some(&origin) => &mut first[origin],
                None => continue,
            },
        };
        next[at] = *slot;
        *slot = at as u32;
    }

    let mut order = Vec::with_capacity(nodes.len());
    let mut waiting = Vec::new();
    let mut here = head;
    loop {
        if here == NONE {
            match waiting.pop() {
                Some(next) => here = next,
                None => return order,
            }
        }
        let at = here as usize;
        order.push(nodes[at].index);
        if next[at] != NONE {
            waiting.push(next[at]);
        }
        here = first[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_of_those_after_the_same_element_comes_first() {
        let node =
            |index, origin, counter, actor: &'static [u8]| Node { index, origin, counter, actor };
        let (a, b): (&[u8], &[u8]) = (&[1], &[2]);
        let cases: [(&[Node<'_>], &[u32]); 5] = [
            (&[], &[]),
            (&[node(0, None, 1, a), node(1, Some(0), 2, a)], &[0, 1]),
            (&[node(0, None, 1, a), node(1, None, 2, a)], &[1, 0]),
            // The same counter: the greater actor is the younger.
            (&[node(0, None, 1, a), node(1, None, 1, b)], &[1, 0]),
            (
                &[
                    node(0, None, 1, a),
                    node(1, Some(0), 2, a),
                    node(2, Some(1), 3, a),
                    node(3, Some(0), 2, b),
                    node(4, Some(3), 4, b),
                    node(5, Some(9), 4, a),
                ],
                &[0, 3, 4, 1, 2],
            ),
        ];
        for (nodes, expected) in cases {
            assert_eq!(order(nodes), expected, "{nodes:?}");
        }
    }
}
