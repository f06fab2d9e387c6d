//! Reads Rust types from Avro by position, as [`Writer`](super::writer::Writer) writes them.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::Unfit;

/// The rest of a record's Avro binary.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Unfit> {
        let (first, rest) =
            self.0.split_first().ok_or_else(|| Unfit("it is cut off".to_owned()))?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads a number: seven bits a byte, the lowest first, then zigzag.
    fn long(&mut self) -> Result<i64, Unfit> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(Unfit("a number has more than 64 bits".to_owned()))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Unfit> {
        let length = usize::try_from(self.long()?).map_err(Error::custom)?;
        let cut = || Unfit("it is cut off".to_owned());
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, Unfit> {
        std::str::from_utf8(self.bytes()?).map_err(Error::custom)
    }

    /// Reads a boolean.
    fn flag(&mut self) -> Result<bool, Unfit> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Unfit(format!("{other} is not a boolean"))),
        }
    }
}

/// Methods for plain values: each reads one and gives it to its visitor.
macro_rules! values {
    ($($read:ident, $visit:ident: $($name:ident)*;)*) => {
        $($(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
            visitor.$visit(self.$read()?)
        })*)*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Unfit> {
        Err(Unfit("no schema has a type that describes itself".to_owned()))
    }

    // The visitor of a number checks the range of its type.
    values! {
        flag, visit_bool: deserialize_bool;
        long, visit_i64: deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
            deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64;
        text, visit_borrowed_str: deserialize_str deserialize_string;
        bytes, visit_borrowed_bytes: deserialize_bytes deserialize_byte_buf;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.long()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            other => Err(Unfit(format!("a union has no branch {other}"))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_seq(Items { reader: self, block: 0, is_last: false })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_seq(Fields(self))
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char unit unit_struct tuple tuple_struct map enum identifier ignored_any
    }
}

/// The fields of a record. Avro does not count them: the type that is read knows their number.
struct Fields<'r, 'de>(&'r mut Reader<'de>);

impl<'de> SeqAccess<'de> for Fields<'_, 'de> {
    type Error = Unfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unfit> {
        seed.deserialize(&mut *self.0).map(Some)
    }
}

/// The items of an array, in blocks.
struct Items<'r, 'de> {
    reader: &'r mut Reader<'de>,
    /// Items of the current block that are left.
    block: u64,
    is_last: bool,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Unfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unfit> {
        if self.block == 0 && !self.is_last {
            let count = self.reader.long()?;
            if count < 0 {
                // The size of the block in bytes, for readers that skip it.
                self.reader.long()?;
            }
            self.block = count.unsigned_abs();
            self.is_last = count == 0;
        }
        if self.is_last {
            return Ok(None);
        }
        self.block -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}
