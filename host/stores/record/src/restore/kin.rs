//! Rows that belong together: which of the rows that are put back refer to which others.
//!
//! A row refers to another one by the columns of an anchor. Both are compared as they are stored, because what was kept
//! of one row may be in another form than the key of the other one.

use std::collections::{HashMap, HashSet};

use besom_core::collection::Collection;
use besom_core::value::{Field, Value};
use besom_ports::store::{BeforeImage, Left};

/// How the rows of some collections refer to each other.
#[derive(Debug, Default, Clone)]
pub struct Kin {
    links: Vec<Link>,
}

/// The rows of one collection refer to those of another one.
#[derive(Debug, Clone)]
struct Link {
    of: String,
    columns: Vec<String>,
    to: String,
    /// Whether both have tenants.
    tenants: bool,
    /// The key of the other one.
    key: Vec<String>,
}

/// A row by its collection and its key, as others refer to it.
pub(super) type Place = (String, Option<String>, Vec<String>);

impl Kin {
    /// As the anchors of these collections say.
    pub fn of<'a>(collections: impl Iterator<Item = &'a Collection> + Clone) -> Kin {
        let mut links = Vec::new();
        for of in collections.clone() {
            for anchor in &of.anchors {
                let Some(to) = collections.clone().find(|to| to.name == anchor.collection) else {
                    continue;
                };
                links.push(Link {
                    of: of.name.clone(),
                    columns: anchor.columns.clone(),
                    to: to.name.clone(),
                    tenants: of.tenant.is_some() && to.tenant.is_some(),
                    key: to.key.clone(),
                });
            }
        }
        Kin { links }
    }

    /// Whether rows may refer to each other at all.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether rows of a collection may refer to others of the same one.
    pub(super) fn is_within(&self, collection: &str) -> bool {
        self.links.iter().any(|link| link.of == collection && link.to == collection)
    }

    /// The rows that a row refers to.
    pub(super) fn above<'k>(&'k self, image: &'k BeforeImage) -> impl Iterator<Item = Place> + 'k {
        let links = self.links.iter().filter(|link| link.of == image.collection);
        links.filter_map(|link| {
            let columns = link.columns.iter().map(|name| stored(image, name));
            let key = columns.collect::<Option<Vec<String>>>()?;
            Some((link.to.clone(), tenant(image, link.tenants), key))
        })
    }

    /// A row as others refer to it.
    pub(super) fn own<'k>(&'k self, image: &'k BeforeImage) -> impl Iterator<Item = Place> + 'k {
        let links = self.links.iter().filter(|link| link.to == image.collection);
        links.filter_map(|link| {
            let part = |(at, name): (usize, &String)| {
                stored(image, name).or_else(|| image.key.get(at).and_then(comparable))
            };
            let key = link.key.iter().enumerate().map(part).collect::<Option<Vec<String>>>()?;
            Some((link.to.clone(), tenant(image, link.tenants), key))
        })
    }

    /// Adds to the chosen rows those that refer to them, and to these in turn; of all, only those that `may` go with
    /// others.
    pub(super) fn add_below(
        &self,
        images: &[BeforeImage],
        chosen: &mut [bool],
        may: impl Fn(&BeforeImage) -> bool,
    ) {
        let mut below: HashMap<Place, Vec<usize>> = HashMap::new();
        let going = || images.iter().enumerate().filter(|(_, image)| may(image));
        for (at, image) in going() {
            self.above(image).for_each(|place| below.entry(place).or_default().push(at));
        }
        let mut open: Vec<usize> = going().map(|(at, _)| at).filter(|at| chosen[*at]).collect();
        while let Some(at) = open.pop() {
            for place in self.own(&images[at]) {
                for at in below.remove(&place).into_iter().flatten() {
                    if !std::mem::replace(&mut chosen[at], true) {
                        open.push(at);
                    }
                }
            }
        }
    }

    /// The same rows, those of one collection that follow each other in an order in which each is in front of the row
    /// of the collection that it refers to: the last one comes back first. `is_deleted`: it has one change.
    pub(super) fn with_parents_last(
        &self,
        images: Vec<BeforeImage>,
        is_deleted: impl Fn(&BeforeImage) -> bool,
    ) -> Vec<BeforeImage> {
        if !self.links.iter().any(|link| link.of == link.to) {
            return images;
        }
        let together = |one: &BeforeImage, other: &BeforeImage| {
            one.collection == other.collection && is_deleted(one) && is_deleted(other)
        };
        let mut ordered = Vec::with_capacity(images.len());
        for run in images.chunk_by(together) {
            let places: HashMap<Place, usize> = run
                .iter()
                .enumerate()
                .flat_map(|(at, of)| self.own(of).map(move |place| (place, at)))
                .collect();
            let above: Vec<Option<usize>> = run
                .iter()
                .map(|image| self.above(image).find_map(|place| places.get(&place).copied()))
                .collect();
            let mut order: Vec<usize> = (0..run.len()).collect();
            let depths = depths(&above);
            order.sort_by_key(|at| std::cmp::Reverse(depths[*at]));
            ordered.extend(order.into_iter().map(|at| run[at].clone()));
        }
        ordered
    }

    /// The rows of these collections to which others refer and which are not there.
    pub(super) fn missing(&self, images: &[BeforeImage], of: &[String]) -> HashSet<Place> {
        if of.is_empty() {
            return HashSet::new();
        }
        let referred = images.iter().flat_map(|image| self.above(image));
        let mut missing: HashSet<Place> = referred.filter(|place| of.contains(&place.0)).collect();
        for place in images.iter().flat_map(|image| self.own(image)) {
            missing.remove(&place);
        }
        missing
    }

    /// The rows that belong together among these, by the first of each family; a row alone has none.
    pub(super) fn families(
        &self,
        images: &[BeforeImage],
        among: &[usize],
    ) -> HashMap<usize, Vec<usize>> {
        if self.is_empty() {
            return HashMap::new();
        }
        let mut places: HashMap<Place, usize> = HashMap::new();
        for at in among {
            places.extend(self.own(&images[*at]).map(|place| (place, *at)));
        }
        // Each points to a row of its family, and the first one to itself.
        let mut heads: HashMap<usize, usize> = among.iter().map(|at| (*at, *at)).collect();
        fn head(heads: &mut HashMap<usize, usize>, mut at: usize) -> usize {
            while let Some(next) = heads.get(&at).copied().filter(|next| *next != at) {
                let beyond = heads.get(&next).copied().unwrap_or(next);
                heads.insert(at, beyond);
                at = next;
            }
            at
        }
        for at in among {
            for place in self.above(&images[*at]) {
                if let Some(above) = places.get(&place) {
                    let (one, other) = (head(&mut heads, *at), head(&mut heads, *above));
                    heads.insert(one, other);
                }
            }
        }
        let mut families: HashMap<usize, Vec<usize>> = HashMap::new();
        for at in among {
            families.entry(head(&mut heads, *at)).or_default().push(*at);
        }
        families.retain(|_, family| family.len() > 1);
        families
    }
}

/// How many rows are above each, of which `above` names the next one; in a circle, as many as are known then.
fn depths(above: &[Option<usize>]) -> Vec<usize> {
    let mut depths: Vec<Option<usize>> = vec![None; above.len()];
    for start in 0..above.len() {
        let (mut path, mut at) = (Vec::new(), Some(start));
        while let Some(here) = at.filter(|here| depths[*here].is_none()) {
            // Until it is known, a circle ends here.
            depths[here] = Some(0);
            path.push(here);
            at = above[here];
        }
        let first = at.and_then(|known| depths[known]).map_or(0, |depth| depth + 1);
        for (depth, here) in (first..).zip(path.into_iter().rev()) {
            depths[here] = Some(depth);
        }
    }
    depths.into_iter().map(Option::unwrap_or_default).collect()
}

fn tenant(image: &BeforeImage, is_shared: bool) -> Option<String> {
    image.tenant.as_ref().filter(|_| is_shared).map(ToString::to_string)
}

/// The value of a column as it is stored; `None`: it is null, or not known.
fn stored(image: &BeforeImage, name: &str) -> Option<String> {
    let fields: &[Field] = match &image.left {
        Left::Set(fields) | Left::As(fields) if image.stored.is_empty() => fields,
        _ => &image.stored,
    };
    let field = fields.iter().find(|field| field.name == name);
    let field = field.or_else(|| fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)));
    comparable(&field?.value)
}

/// A value, however it is spelt; `None`: it refers to nothing.
fn comparable(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        // `char(n)` ends with blanks that are not part of the value.
        Value::Text(text) => text.trim_end_matches(' ').to_owned(),
        Value::Bytes(bytes) => hex::encode(bytes),
        Value::Uuid(bytes) => {
            let hex = hex::encode(bytes);
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            parts.join("-")
        }
        other => other.shown(),
    })
}

#[cfg(test)]
mod tests {
    use super::depths;

    #[test]
    fn rows_are_as_deep_as_those_above_them_are_many() {
        assert_eq!(depths(&[None, Some(0), Some(1), Some(0)]), [0, 1, 2, 1]);
        assert_eq!(depths(&[Some(1), Some(2), None]), [2, 1, 0]);
        let circle = depths(&[Some(1), Some(0), Some(0)]);
        assert!(circle[2] > circle[0], "{circle:?}");
    }
}
