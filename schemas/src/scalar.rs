//! Values that travel as one text or one byte string. They are parsed without a copy.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Display and serde for a type that is written as `$text` of a value and read by `$read`.
macro_rules! text_scalar {
    ($name:ident, |$value:ident| $text:expr, $read:expr) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $value = self;
                f.write_str($text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                serializer.serialize_str($text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::scalar::from_text(deserializer, $read)
            }
        }
    };
}
pub(crate) use text_scalar;

pub(crate) fn from_text<'de, T, E: fmt::Display, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    struct Text<T, E>(fn(&str) -> Result<T, E>);
    impl<T, E: fmt::Display> Visitor<'_> for Text<T, E> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
            (self.0)(text).map_err(F::custom)
        }
    }
    deserializer.deserialize_str(Text(parse))
}

/// Reads a value from its bytes; the error names `what` they must be.
pub(crate) fn from_bytes<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    what: &'static str,
    parse: fn(&[u8]) -> Option<T>,
) -> Result<T, D::Error> {
    struct Bytes<T>(&'static str, fn(&[u8]) -> Option<T>);
    impl<T> Visitor<'_> for Bytes<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_bytes<F: Error>(self, bytes: &[u8]) -> Result<T, F> {
            (self.1)(bytes).ok_or_else(|| F::custom(format_args!("not {}", self.0)))
        }
    }
    deserializer.deserialize_bytes(Bytes(what, parse))
}
