//! The schemas: one for each type of record, in every version that was released.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::CodecError;

/// The record types, one for each schema file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is documented in its schema file, which is its definition")]
pub enum SchemaName {
    ChainRecord,
    OrderCommand,
    DepositCommand,
    Order,
    Deposit,
    Transfer,
    MatchingEntry,
    OrdersEntry,
    Delivery,
    Attempt,
    ChainProgress,
    Alert,
    DeadLetter,
}

/// One version of one schema, as published.
#[derive(Debug)]
pub struct Schema {
    pub name: SchemaName,
    /// Counts the versions of this record from 1.
    pub version: u32,
    /// Id in the wire format: the first 31 bits of the SHA-256 of its text, so that the same text has
    /// the same id in every installation.
    pub id: u32,
    /// The text of the `.avsc` file, with its docs and defaults.
    pub text: &'static str,
    pub(crate) parsed: apache_avro::Schema,
}

/// All versions of one record's schema.
#[derive(Debug)]
pub(crate) struct Versions {
    all: Vec<Schema>,
    /// Which of them records are written with.
    written: usize,
}

impl SchemaName {
    pub const ALL: [Self; 13] = [
        Self::ChainRecord,
        Self::OrderCommand,
        Self::DepositCommand,
        Self::Order,
        Self::Deposit,
        Self::Transfer,
        Self::MatchingEntry,
        Self::OrdersEntry,
        Self::Delivery,
        Self::Attempt,
        Self::ChainProgress,
        Self::Alert,
        Self::DeadLetter,
    ];

    /// The text that records are written with.
    const fn text(self) -> &'static str {
        match self {
            Self::ChainRecord => include_str!("../avro/chain_record.avsc"),
            Self::OrderCommand => include_str!("../avro/order_command.avsc"),
            Self::DepositCommand => include_str!("../avro/deposit_command.avsc"),
            Self::Order => include_str!("../avro/order.avsc"),
            Self::Deposit => include_str!("../avro/deposit.avsc"),
            Self::Transfer => include_str!("../avro/transfer.avsc"),
            Self::MatchingEntry => include_str!("../avro/matching_entry.avsc"),
            Self::OrdersEntry => include_str!("../avro/orders_entry.avsc"),
            Self::Delivery => include_str!("../avro/delivery.avsc"),
            Self::Attempt => include_str!("../avro/attempt.avsc"),
            Self::ChainProgress => include_str!("../avro/chain_progress.avsc"),
            Self::Alert => include_str!("../avro/alert.avsc"),
            Self::DeadLetter => include_str!("../avro/dead_letter.avsc"),
        }
    }

    /// The texts that were released, in their order: `released/<record>/<version>.avsc`. Never changed,
    /// never removed: somebody has bytes of each.
    const fn released(self) -> &'static [&'static str] {
        match self {
            Self::ChainRecord => &[include_str!("../released/chain_record/1.avsc")],
            Self::OrderCommand => &[include_str!("../released/order_command/1.avsc")],
            Self::DepositCommand => &[include_str!("../released/deposit_command/1.avsc")],
            Self::Order => &[include_str!("../released/order/1.avsc")],
            Self::Deposit => &[include_str!("../released/deposit/1.avsc")],
            Self::Transfer => &[include_str!("../released/transfer/1.avsc")],
            Self::MatchingEntry => &[include_str!("../released/matching_entry/1.avsc")],
            Self::OrdersEntry => &[include_str!("../released/orders_entry/1.avsc")],
            Self::Delivery => &[include_str!("../released/delivery/1.avsc")],
            Self::Attempt => &[include_str!("../released/attempt/1.avsc")],
            Self::ChainProgress => &[include_str!("../released/chain_progress/1.avsc")],
            Self::Alert => &[include_str!("../released/alert/1.avsc")],
            Self::DeadLetter => &[include_str!("../released/dead_letter/1.avsc")],
        }
    }

    /// The schema that records are written with.
    #[must_use]
    pub fn schema(self) -> &'static Schema {
        self.versions().written()
    }

    /// Every version that can be read, the first one first: the released ones, and the one written if
    /// it is not released yet.
    #[must_use]
    pub fn schemas(self) -> &'static [Schema] {
        &self.versions().all
    }

    /// The version that means the same as `text`, whatever its white space, attribute order and way to
    /// write names. Where versions differ in nothing but docs and defaults, the exact one counts, then
    /// the newest.
    ///
    /// # Errors
    /// [`CodecError::Avro`] if `text` is not a schema.
    pub fn find(self, text: &str) -> Result<Option<&'static Schema>, CodecError> {
        let parsed = apache_avro::Schema::parse_str(text)
            .map_err(|cause| CodecError::Avro { name: self, cause: cause.to_string() })?;
        let exact = self.schemas().iter().find(|schema| schema.text == text);
        let same = || self.schemas().iter().rev().find(|schema| schema.parsed == parsed);
        Ok(exact.or_else(same))
    }

    pub(crate) fn versions(self) -> &'static Versions {
        &SCHEMAS[self as usize]
    }
}

impl Versions {
    /// Versions of a record from their texts.
    #[expect(clippy::expect_used, reason = "schema files are compiled in; a test parses each one")]
    pub(crate) fn new(name: SchemaName, released: &[&'static str], written: &'static str) -> Self {
        let mut texts = released.to_vec();
        if !texts.contains(&written) {
            texts.push(written);
        }
        let position = texts.iter().position(|text| *text == written).unwrap_or_default();
        let schema = |(version, text): (u32, &'static str)| {
            let parsed = apache_avro::Schema::parse_str(text).expect("a schema file parses");
            Schema { name, version, id: id_of(text), text, parsed }
        };
        Self { all: (1..).zip(texts).map(schema).collect(), written: position }
    }

    pub(crate) fn written(&self) -> &Schema {
        &self.all[self.written]
    }

    /// Those that are read and not written.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Schema> {
        self.all.iter().filter(|schema| schema.id != self.written().id)
    }
}

static SCHEMAS: LazyLock<Vec<Versions>> = LazyLock::new(|| {
    SchemaName::ALL.iter().map(|name| Versions::new(*name, name.released(), name.text())).collect()
});

fn id_of(text: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(text.as_bytes()));
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_follow_from_the_text() {
        let all = || SchemaName::ALL.iter().flat_map(|name| name.schemas());
        let mut ids: Vec<_> = all().map(|schema| schema.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().count());
        for name in SchemaName::ALL {
            assert_eq!(name.schema().name, name);
            for (version, schema) in (1..).zip(name.schemas()) {
                assert_eq!((schema.name, schema.version), (name, version));
                assert_eq!(schema.id, id_of(schema.text));
            }
        }
        // `printf tidemark | sha256sum` begins with eebe3805, or the ids of every installation change.
        assert_eq!(id_of("tidemark"), 0xeebe_3805 & 0x7fff_ffff);
    }

    #[test]
    fn a_schema_is_found_by_its_meaning() {
        let schema = SchemaName::Order.schema();
        let compact = serde_json::from_str::<serde_json::Value>(schema.text).unwrap().to_string();
        let found = |text: &str| SchemaName::Order.find(text).unwrap().map(|schema| schema.id);
        assert_ne!(compact, schema.text);
        assert_eq!(found(&compact), Some(schema.id));
        let without_inner_namespaces = schema
            .text
            .replace("\"namespace\": \"tidemark\",", "")
            .replacen('{', "{\"namespace\": \"tidemark\",", 1);
        assert_eq!(found(&without_inner_namespaces), Some(schema.id));
        assert_eq!(found(SchemaName::Deposit.schema().text), None);
        assert_eq!(found(&schema.text.replace("merchant_order_id", "shop_order_id")), None);
        assert!(SchemaName::Order.find("{}").is_err());
    }
}
