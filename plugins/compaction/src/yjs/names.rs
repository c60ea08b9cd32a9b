//! Assigns small numbers to clients and texts, shared by the models that are compared.

use std::collections::HashMap;

/// A unit: the number of its client in [`Names`], and its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The client's number; that of [`Id::NONE`] belongs to no client.
    pub client: u32,
    /// The clock of the unit.
    pub clock: u32,
}

impl Id {
    /// No unit.
    pub const NONE: Id = Id { client: u32::MAX, clock: 0 };

    /// Whether it names a unit.
    pub fn is_some(self) -> bool {
        self.client != u32::MAX
    }
}

/// A text's number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Text(pub u32);

impl Text {
    /// No text.
    pub const NONE: Text = Text(u32::MAX);

    /// Whether it names a text.
    pub fn is_some(self) -> bool {
        self != Text::NONE
    }
}

/// The numbers given so far.
#[derive(Debug, Default)]
pub struct Names {
    clients: Vec<u64>,
    client_numbers: HashMap<u64, u32>,
    texts: Vec<Box<str>>,
    text_numbers: HashMap<Box<str>, Text>,
    /// The last client, because consecutive rows are usually from the same one.
    last: Option<(u64, u32)>,
}

impl Names {
    /// The number of a client, which is assigned at the first call.
    #[inline]
    pub fn client(&mut self, client: u64) -> u32 {
        if let Some((last, number)) = self.last
            && last == client
        {
            return number;
        }
        let clients = &mut self.clients;
        let number = *self.client_numbers.entry(client).or_insert_with(|| {
            clients.push(client);
            (clients.len() - 1) as u32
        });
        self.last = Some((client, number));
        number
    }

    /// The client with that number.
    pub fn client_id(&self, number: u32) -> u64 {
        self.clients[number as usize]
    }

    /// Whether a client has a number.
    pub fn knows_client(&self, client: u64) -> bool {
        self.client_numbers.contains_key(&client)
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The number of a text, which is assigned at the first call.
    pub fn text(&mut self, text: &str) -> Text {
        if let Some(&number) = self.text_numbers.get(text) {
            return number;
        }
        let number = Text(self.texts.len() as u32);
        self.texts.push(text.into());
        self.text_numbers.insert(text.into(), number);
        number
    }

    /// The text with that number.
    pub fn text_of(&self, number: Text) -> &str {
        &self.texts[number.0 as usize]
    }

    /// The clients' numbers in descending order of the clients, as updates are written.
    pub fn descending(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.clients.len() as u32).collect();
        numbers.sort_by_key(|&n| std::cmp::Reverse(self.client_id(n)));
        numbers
    }
}
