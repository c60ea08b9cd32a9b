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
type Place = (String, Option<String>, Vec<String>);

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
        Value::Bytes(bytes) => crate::images::hex(bytes),
        Value::Uuid(bytes) => {
            let hex = crate::images::hex(bytes);
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            parts.join("-")
        }
        other => other.shown(),
    })
}
