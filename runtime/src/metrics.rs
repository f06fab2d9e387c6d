//! A crate's metrics in one table: each is declared, described and documented by one entry.

/// What a metric does over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// `tidemark_<crate>_<thing>[_<unit>][_total]`.
    pub name: &'static str,
    pub kind: Kind,
    /// The labels' names. Their values come from closed sets.
    pub labels: &'static [&'static str],
    pub meaning: &'static str,
}

impl Metric {
    /// The unit that the name ends with; none for a plain count.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "records", "blocks", "bytes"].into_iter().find(|unit| name.ends_with(unit))
    }
}

/// Describes metrics to the installed recorder.
pub fn describe(metrics: &[Metric]) {
    for Metric { name, kind, meaning, .. } in metrics {
        match kind {
            Kind::Counter => metrics::describe_counter!(*name, meaning.trim()),
            Kind::Gauge => metrics::describe_gauge!(*name, meaning.trim()),
            Kind::Histogram => metrics::describe_histogram!(*name, meaning.trim()),
        }
    }
}

/// Declares a crate's metrics: a constant with the name of each, and the table `METRICS` of all. An entry
/// is `Counter ATTEMPTS = "tidemark_webhooks_attempts_total" [outcome];`: the doc comment on it is the
/// meaning, the words in brackets are the labels.
#[macro_export]
macro_rules! metrics {
    ($($(#[doc = $meaning:literal])+ $kind:ident $id:ident = $name:literal [$($label:ident),*];)+) => {
        $($(#[doc = $meaning])+ pub(crate) const $id: &str = $name;)+

        /// Every metric of this crate.
        pub const METRICS: &[$crate::metrics::Metric] = &[$($crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            labels: &[$(stringify!($label)),*],
            meaning: concat!($($meaning),+),
        }),+];
    };
}
