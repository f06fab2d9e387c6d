//! A crate's metrics in one table: each is declared, described and documented by one entry.

/// Kind of a metric, by its course over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Value of a gauge that is not exported: this process does not know the real one.
pub const NO_VALUE: f64 = f64::NAN;

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// `tidemark_<crate>_<thing>[_<unit>][_total]`.
    pub name: &'static str,
    pub kind: Kind,
    /// The labels' names. Their values come from closed sets.
    pub labels: &'static [&'static str],
    /// All values of each label; empty for a label whose values only the recording code knows.
    pub values: &'static [&'static [&'static str]],
    pub meaning: &'static str,
}

impl Metric {
    /// The unit that the name ends with; none for a plain count.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "records", "blocks", "bytes"].into_iter().find(|unit| name.ends_with(unit))
    }

    /// Every combination of the labels' values.
    fn combinations(
        &self,
        known: &[(&str, &[&'static str])],
    ) -> Vec<Vec<(&'static str, &'static str)>> {
        let mut all = vec![Vec::new()];
        for (label, values) in self.labels.iter().zip(self.values) {
            let of_caller = known.iter().find(|(name, _)| name == label).map(|(_, values)| *values);
            let values = of_caller.unwrap_or(values);
            let with = |labels: Vec<_>| {
                let label =
                    |value: &&'static str| [labels.clone(), vec![(*label, *value)]].concat();
                values.iter().map(label).collect::<Vec<_>>()
            };
            all = all.into_iter().flat_map(with).collect();
        }
        all
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

/// Exports each counter and histogram at 0 for every combination of its labels' values, so that the
/// first event is already an increase. `known` has the values of labels that only the caller
/// knows; a metric that has a label without known values is left out.
pub fn register(metrics: &[Metric], known: &[(&str, &[&'static str])]) {
    for metric in metrics {
        for labels in metric.combinations(known) {
            match metric.kind {
                Kind::Counter => metrics::counter!(metric.name, &labels).increment(0),
                Kind::Histogram => drop(metrics::histogram!(metric.name, &labels)),
                // A gauge exported as 0 would show a value that nobody measured.
                Kind::Gauge => {}
            }
        }
    }
}

/// Declares a crate's metrics: a constant with the name of each, and the table `METRICS` of all. An entry
/// is `Counter ATTEMPTS = "tidemark_webhooks_attempts_total" [outcome in OUTCOMES];`: the doc comment on it is the
/// meaning, the words in brackets are the labels, each with its values where they are known here.
#[macro_export]
macro_rules! metrics {
    (@values) => { &[] };
    (@values $values:expr) => { $values };
    ($($(#[doc = $meaning:literal])+ $kind:ident $id:ident = $name:literal
        [$($label:ident $(in $values:expr)?),*];)+) => {
        $($(#[doc = $meaning])+ pub(crate) const $id: &str = $name;)+

        /// Every metric of this crate.
        pub const METRICS: &[$crate::metrics::Metric] = &[$($crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            labels: &[$(stringify!($label)),*],
            values: &[$($crate::metrics!(@values $($values)?)),*],
            meaning: concat!($($meaning),+),
        }),+];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: Metric = Metric {
        name: "events_total",
        kind: Kind::Counter,
        labels: &["kind", "place"],
        values: &[&["a", "b"], &[]],
        meaning: "",
    };

    #[test]
    fn every_combination_of_known_values_counts() {
        assert!(EVENTS.combinations(&[]).is_empty(), "nobody says where");
        let known = EVENTS.combinations(&[("place", &["x", "y"]), ("other", &["z"])]);
        let text: Vec<_> = known.iter().map(|l| format!("{}{}", l[0].1, l[1].1)).collect();
        assert_eq!(text, ["ax", "ay", "bx", "by"]);
    }
}
