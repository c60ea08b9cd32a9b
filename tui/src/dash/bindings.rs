//! The keys of the screens, as data: one table per screen says which keys there are, what they are
//! called, when they apply, and what they do.
//!
//! The line of keys, the help, the palette and the table in `docs/dashboard.md` are made from it,
//! so that none of them can name a key that does nothing. Keys that move a selection are not
//! bindings: the tables and panes handle them. The keys that work on every screen are in
//! [`everywhere`](super::everywhere).

use super::context::Context;
use super::effect::Outbox;
use super::key::{Code, Key};

/// A key and its effect, for the line of keys and the help: `("t", "trigger")`.
pub type Hint = (&'static str, &'static str);

/// A binding of the screen `S`.
#[derive(Debug)]
pub struct Binding<S> {
    /// The keys, without control and alt; empty: another part handles what is shown.
    pub keys: &'static [Code],
    /// The keys as shown; empty: they are not shown.
    pub shown: &'static str,
    /// What they do, in a word or two.
    pub name: &'static str,
    /// The words in the palette; empty: the palette does not offer it.
    pub command: &'static str,
    /// Whether it changes something: it is not shown while the dashboard is read-only. The frame
    /// refuses it then.
    pub changes: bool,
    /// Whether it applies now. Of several that apply to a key, the first is performed.
    pub applies: fn(&S, &Context<'_>) -> bool,
    /// Performs it.
    pub act: fn(&mut S, Key, &Context<'_>, &mut Outbox),
}

impl<S> Binding<S> {
    /// A binding that always applies.
    pub const fn new(
        shown: &'static str,
        name: &'static str,
        keys: &'static [Code],
        act: fn(&mut S, Key, &Context<'_>, &mut Outbox),
    ) -> Binding<S> {
        Binding { keys, shown, name, command: "", changes: false, applies: |_, _| true, act }
    }

    /// A key that another part handles.
    pub const fn shown(shown: &'static str, name: &'static str) -> Binding<S> {
        Binding::new(shown, name, &[], |_, _, _, _| {})
    }

    /// A key that is not shown.
    pub const fn hidden(
        keys: &'static [Code],
        act: fn(&mut S, Key, &Context<'_>, &mut Outbox),
    ) -> Binding<S> {
        Binding::new("", "", keys, act)
    }

    /// The binding, under a condition.
    pub const fn when(mut self, applies: fn(&S, &Context<'_>) -> bool) -> Binding<S> {
        self.applies = applies;
        self
    }

    /// The binding, which changes something.
    pub const fn changes(mut self) -> Binding<S> {
        self.changes = true;
        self
    }

    /// The binding, with its words in the palette.
    pub const fn command(mut self, words: &'static str) -> Binding<S> {
        self.command = words;
        self
    }
}

/// What has a table of bindings.
pub trait Bound: Sized + 'static {
    /// The table, the most useful binding first.
    const BINDINGS: &'static [Binding<Self>];
}

/// The uses of a table of bindings.
pub trait Keys {
    /// Performs the binding of a key; false: there is none that applies.
    fn press(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool;

    /// The keys that apply now, for the line of keys and the help.
    fn hints(&self, cx: &Context<'_>) -> Vec<Hint>;

    /// The commands that apply now, for the palette: their words and their keys.
    fn commands(&self, cx: &Context<'_>) -> Vec<(&'static str, Key)>;

    /// All keys that are ever shown, each once, for the documentation.
    fn all(&self) -> Vec<Hint>;
}

impl<S: Bound> Keys for S {
    fn press(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let of_key = |binding: &&Binding<S>| binding.keys.contains(&key.code);
        let found = S::BINDINGS.iter().filter(of_key).find(|b| (b.applies)(self, cx));
        let Some(binding) = found else { return false };
        (binding.act)(self, key, cx, out);
        true
    }

    fn hints(&self, cx: &Context<'_>) -> Vec<Hint> {
        let shown = S::BINDINGS.iter().filter(|b| !b.shown.is_empty());
        let allowed = shown.filter(|b| !b.changes || !cx.readonly);
        allowed.filter(|b| (b.applies)(self, cx)).map(|b| (b.shown, b.name)).collect()
    }

    fn commands(&self, cx: &Context<'_>) -> Vec<(&'static str, Key)> {
        let named = S::BINDINGS.iter().filter(|b| !b.command.is_empty() && (b.applies)(self, cx));
        named.filter_map(|b| Some((b.command, Key::plain(*b.keys.first()?)))).collect()
    }

    fn all(&self) -> Vec<Hint> {
        let mut all: Vec<Hint> = Vec::new();
        for binding in S::BINDINGS.iter().filter(|binding| !binding.shown.is_empty()) {
            let hint = (binding.shown, binding.name);
            if !all.contains(&hint) {
                all.push(hint);
            }
        }
        all
    }
}
