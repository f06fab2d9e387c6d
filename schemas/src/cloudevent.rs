//! CloudEvents headers in the Kafka binding's binary mode: what a reader knows before decoding.

use crate::{Topic, UnixMicros};

/// W3C trace context, handed on from a record to the records it causes.
pub const HEADER_TRACEPARENT: &str = "traceparent";

/// The attributes of one record that are not functions of its topic.
#[derive(Debug, Clone, Copy)]
pub struct CloudEvent<'a> {
    /// Unique within the source. Effects of one input repeat it on replay.
    pub id: &'a str,
    /// When what the record tells happened.
    pub time: UnixMicros,
    /// Trace context, where the cause had one.
    pub traceparent: Option<&'a [u8]>,
}

impl CloudEvent<'_> {
    /// The headers of a record of `topic`.
    #[must_use]
    pub fn headers(&self, topic: Topic) -> Vec<(String, Vec<u8>)> {
        let time = rfc3339(self.time);
        let mut headers: Vec<(String, Vec<u8>)> = [
            ("ce_specversion", "1.0"),
            ("ce_id", self.id),
            ("ce_source", "tidemark"),
            ("ce_type", topic.spec().event_type),
            ("ce_time", &time),
            ("content-type", "application/avro"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .collect();
        if let Some(parent) = self.traceparent {
            headers.push((HEADER_TRACEPARENT.to_owned(), parent.to_vec()));
        }
        headers
    }
}

/// RFC 3339 in UTC with microseconds, by the civil-from-days method (proleptic Gregorian).
fn rfc3339(time: UnixMicros) -> String {
    let (seconds, micros) = (time.0.div_euclid(1_000_000), time.0.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_827_696_123_456, "2000-02-29T12:34:56.123456Z"),
            (1_767_225_599_999_999, "2025-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(rfc3339(UnixMicros(micros)), text);
        }
    }

    #[test]
    fn binary_mode_names_the_type_of_the_topic() {
        let event = CloudEvent { id: "x/1", time: UnixMicros(0), traceparent: Some(b"00-1-2-01") };
        let headers = event.headers(Topic::Orders);
        assert!(headers.contains(&("ce_type".into(), b"tidemark.order".to_vec())));
        assert!(headers.contains(&("traceparent".into(), b"00-1-2-01".to_vec())));
    }
}
