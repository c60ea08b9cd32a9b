//! Serialises values of the outward model as the command line prints them: instants become RFC 3339
//! text, everything else stays as it is on the wire.

use std::fmt::Display;

use besom_core::time::Time;
use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Value;

/// A value whose instants are printed as text. Time is recognised by the name of its newtype, so
/// that no row has to be copied into another type for the sake of its instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Printed<T>(pub T);

impl<T: Serialize> Serialize for Printed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Printer(to))
    }
}

/// The printed value as JSON, for a verb that adds fields to it.
pub fn json(value: &impl Serialize) -> Value {
    // The model contains only what JSON can represent.
    serde_json::to_value(Printed(value)).unwrap_or_default()
}

/// A serializer, or one of its compounds, that prints the instants in the values it passes on.
struct Printer<S>(S);

/// Methods that take a value without instants, or a name.
macro_rules! pass {
    ($($method:ident($($name:ident: $of:ty),*) -> $end:ty;)*) => {
        $(fn $method(self, $($name: $of),*) -> Result<$end, S::Error> {
            self.0.$method($($name),*)
        })*
    };
}

/// Methods that begin a compound, whose values may contain instants.
macro_rules! begin {
    ($($method:ident($($name:ident: $of:ty),*) -> $compound:ident;)*) => {
        $(type $compound = Printer<S::$compound>;
        fn $method(self, $($name: $of),*) -> Result<Self::$compound, S::Error> {
            self.0.$method($($name),*).map(Printer)
        })*
    };
}

impl<S: Serializer> Serializer for Printer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    pass! {
        serialize_bool(v: bool) -> S::Ok;
        serialize_i8(v: i8) -> S::Ok;
        serialize_i16(v: i16) -> S::Ok;
        serialize_i32(v: i32) -> S::Ok;
        serialize_i64(v: i64) -> S::Ok;
        serialize_u8(v: u8) -> S::Ok;
        serialize_u16(v: u16) -> S::Ok;
        serialize_u32(v: u32) -> S::Ok;
        serialize_u64(v: u64) -> S::Ok;
        serialize_f32(v: f32) -> S::Ok;
        serialize_f64(v: f64) -> S::Ok;
        serialize_char(v: char) -> S::Ok;
        serialize_str(v: &str) -> S::Ok;
        serialize_bytes(v: &[u8]) -> S::Ok;
        serialize_none() -> S::Ok;
        serialize_unit() -> S::Ok;
        serialize_unit_struct(name: &'static str) -> S::Ok;
        serialize_unit_variant(name: &'static str, at: u32, variant: &'static str) -> S::Ok;
    }

    begin! {
        serialize_seq(len: Option<usize>) -> SerializeSeq;
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, at: u32, variant: &'static str, len: usize)
            -> SerializeTupleVariant;
        serialize_map(len: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, at: u32, variant: &'static str, len: usize)
            -> SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Printed(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        if name == "Time" {
            let micros = serde_json::to_value(value).ok().and_then(|micros| micros.as_i64());
            let micros = micros.ok_or_else(|| S::Error::custom("an instant is not a number"))?;
            return self.0.collect_str(&Time(micros));
        }
        self.0.serialize_newtype_struct(name, &Printed(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        at: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, at, variant, &Printed(value))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }
}

/// A compound: passes its values on, with their instants printed.
macro_rules! compound {
    ($($of:ident: $method:ident($($key:ident)?);)*) => {
        $(impl<S: $of> $of for Printer<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), S::Error> {
                self.0.$method($($key,)? &Printed(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

compound! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(key);
    SerializeStructVariant: serialize_field(key);
}

impl<S: SerializeMap> SerializeMap for Printer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(&Printed(key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Printed(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Unit,
        New(Time),
        Pair(u8, Time),
        Named { at: Time },
    }

    #[derive(Serialize)]
    struct Inner {
        at: Time,
        number: i64,
    }

    #[derive(Serialize)]
    struct Outer {
        none: Option<Time>,
        some: Option<Time>,
        kinds: Vec<Kind>,
        #[serde(flatten)]
        inner: Inner,
    }

    #[test]
    fn instants_are_text_wherever_they_are_and_nothing_else_changes() {
        let at = Time(1_750_000_000_999_999);
        let text = "2025-06-15T15:06:40.999999Z";
        let value = Outer {
            none: None,
            some: Some(at),
            kinds: vec![Kind::Unit, Kind::New(at), Kind::Pair(7, at), Kind::Named { at }],
            inner: Inner { at, number: at.0 },
        };
        assert_eq!(
            super::json(&(&value, [at].as_slice())),
            json!([
                {
                    "none": null,
                    "some": text,
                    "kinds": ["unit", { "new": text }, { "pair": [7, text] }, { "named": { "at": text } }],
                    "at": text,
                    "number": at.0,
                },
                [text],
            ])
        );
        // Inside another value, only the wrapped part is printed.
        assert_eq!(
            serde_json::to_value((at, Printed(at))).expect("plain data"),
            json!([at.0, text])
        );
    }
}
