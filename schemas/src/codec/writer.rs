//! Writes Rust types as Avro by position: a record's fields in the order of its schema, an `Option` as a
//! union of null and a type. The schema itself is not read: a test compares the order of the fields.

use std::fmt::Display;

use serde::ser::{Error, Impossible, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::Unfit;

/// Serializer that appends Avro binary to a buffer.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    /// Writes a number: zigzag, then seven bits a byte, the lowest first.
    fn long(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest > 0x7f {
            self.0.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }
}

/// Methods for integer types whose every value fits Avro's `long`.
macro_rules! numbers {
    ($($name:ident($of:ty))*) => {
        $(fn $name(mut self, value: $of) -> Result<(), Unfit> {
            self.long(value.into());
            Ok(())
        })*
    };
}

/// Methods for types that no schema has: each call is a defect of the type that makes it.
macro_rules! unfit {
    ($($name:ident($($of:ty),*) -> $ok:ty;)*) => {
        $(fn $name(self, $(_: $of),*) -> Result<$ok, Unfit> {
            Err(Unfit(concat!("no schema has what ", stringify!($name), " writes").to_owned()))
        })*
    };
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Unfit;
    type SerializeSeq = Self;
    type SerializeStruct = Self;
    type SerializeTuple = Impossible<(), Unfit>;
    type SerializeTupleStruct = Impossible<(), Unfit>;
    type SerializeTupleVariant = Impossible<(), Unfit>;
    type SerializeMap = Impossible<(), Unfit>;
    type SerializeStructVariant = Impossible<(), Unfit>;

    fn serialize_bool(self, value: bool) -> Result<(), Unfit> {
        self.0.push(u8::from(value));
        Ok(())
    }

    numbers! {
        serialize_i32(i32) serialize_i64(i64) serialize_u8(u8) serialize_u16(u16) serialize_u32(u32)
    }

    fn serialize_u64(mut self, value: u64) -> Result<(), Unfit> {
        self.long(i64::try_from(value).map_err(Error::custom)?);
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Unfit> {
        self.serialize_bytes(text.as_bytes())
    }

    fn serialize_bytes(mut self, bytes: &[u8]) -> Result<(), Unfit> {
        self.long(i64::try_from(bytes.len()).map_err(Error::custom)?);
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(mut self) -> Result<(), Unfit> {
        self.long(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), Unfit> {
        self.long(1);
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        value.serialize(self)
    }

    /// Writes all items as one block.
    fn serialize_seq(mut self, length: Option<usize>) -> Result<Self, Unfit> {
        let length = length.ok_or_else(|| Unfit("an array of unknown length".to_owned()))?;
        if length > 0 {
            self.long(i64::try_from(length).map_err(Error::custom)?);
        }
        Ok(self)
    }

    fn serialize_struct(self, _name: &'static str, _fields: usize) -> Result<Self, Unfit> {
        Ok(self)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Unfit> {
        self.serialize_str(&value.to_string())
    }

    unfit! {
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Unfit> {
        Err(Unfit(format!("no schema has the variants of {name}")))
    }
}

impl SerializeSeq for Writer<'_> {
    type Ok = ();
    type Error = Unfit;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Unfit> {
        item.serialize(Writer(self.0))
    }

    /// The empty block that ends an array.
    fn end(mut self) -> Result<(), Unfit> {
        self.long(0);
        Ok(())
    }
}

impl SerializeStruct for Writer<'_> {
    type Ok = ();
    type Error = Unfit;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        value.serialize(Writer(self.0))
    }

    fn skip_field(&mut self, name: &'static str) -> Result<(), Unfit> {
        Err(Unfit(format!("{name} is left out")))
    }

    fn end(self) -> Result<(), Unfit> {
        Ok(())
    }
}
