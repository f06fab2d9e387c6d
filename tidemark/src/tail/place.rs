//! Starting point of a read: a place by name, offset or time.

use std::str::FromStr;

use log::{Error, Offset, TopicPartition};
use schemas::{UnixMicros, UnixSeconds};

use super::Source;

/// Starting point in every partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Beginning,
    End,
    Offset(Offset),
    /// The first record appended at or after this time.
    Time(UnixMicros),
}

impl FromStr for From {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be beginning, end, offset:N, a time such as 2026-09-21T14:00:00Z, or \
                             Unix seconds";
        if let Some(offset) = text.strip_prefix("offset:") {
            let offset = offset.parse().ok().filter(|offset| *offset >= 0);
            return offset.map(|offset| Self::Offset(Offset(offset))).ok_or(WRONG);
        }
        match text {
            "beginning" => Ok(Self::Beginning),
            "end" => Ok(Self::End),
            _ => parse_time(text).map(Self::Time).ok_or(WRONG),
        }
    }
}

/// A time as an argument: such as 2026-09-21T14:00:00Z, or Unix seconds.
pub(crate) fn time(text: &str) -> Result<UnixMicros, &'static str> {
    parse_time(text).ok_or("must be as 2026-09-21T14:00:00Z, or Unix seconds")
}

fn parse_time(text: &str) -> Option<UnixMicros> {
    let seconds = text.parse().map(|seconds| UnixSeconds(seconds).micros());
    seconds.or_else(|_| text.parse()).ok()
}

impl From {
    /// The offset to begin with in a partition.
    pub(crate) fn find(self, source: &Source, of: TopicPartition) -> Result<Offset, Error> {
        let bounds = source.bounds(of)?;
        Ok(match self {
            Self::Beginning => bounds.start,
            Self::End => bounds.end,
            Self::Offset(offset) => offset.max(bounds.start),
            Self::Time(time) => {
                let first = |from| {
                    let page = source.read(of, from, 1)?;
                    Ok(page.first().map(|record| (record.offset, record.appended_at)))
                };
                search(bounds.start, bounds.end, first, time)?
            }
        })
    }
}

/// The least offset from which on all records were appended at or after `time`, by binary search: append times of a
/// partition never decrease unless a broker's clock does. `first_from` returns the first record at or after an offset,
/// as offsets have gaps.
fn search(
    start: Offset,
    end: Offset,
    first_from: impl Fn(Offset) -> Result<Option<(Offset, UnixMicros)>, Error>,
    time: UnixMicros,
) -> Result<Offset, Error> {
    let (mut low, mut high) = (start, end);
    while low < high {
        let middle = Offset(low.0 + (high.0 - low.0) / 2);
        match first_from(middle)? {
            Some((found, appended_at)) if appended_at < time => low = found.next(),
            _ => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let time = |seconds| Ok(From::Time(UnixSeconds(seconds).micros()));
        for (text, place) in [
            ("beginning", Ok(From::Beginning)),
            ("end", Ok(From::End)),
            ("offset:7", Ok(From::Offset(Offset(7)))),
            ("1790000000", time(1_790_000_000)),
            ("1970-01-01T00:01:00Z", time(60)),
        ] {
            assert_eq!(text.parse(), place, "{text}");
        }
        for text in ["", "start", "offset:", "offset:-1", "1.5", "2026-09-21"] {
            assert!(text.parse::<From>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_found_among_gaps_and_equal_times() {
        // Offsets 3 to 20 with gaps, and their times.
        let records = [(3, 10), (4, 10), (7, 20), (8, 20), (9, 20), (15, 30), (19, 40)];
        let first_from = |from: Offset| {
            let found = records.iter().find(|(offset, _)| *offset >= from.0);
            Ok(found.map(|(offset, time)| (Offset(*offset), UnixMicros(*time))))
        };
        for (time, expected) in
            [(0, Some(3)), (10, Some(3)), (11, Some(7)), (20, Some(7)), (30, Some(15)), (41, None)]
        {
            let place = search(Offset(3), Offset(21), first_from, UnixMicros(time)).unwrap();
            let found = first_from(place).unwrap().map(|(offset, _)| offset.0);
            assert_eq!(found, expected, "{time}");
        }
        assert_eq!(search(Offset(3), Offset(3), first_from, UnixMicros(0)).unwrap(), Offset(3));
    }
}
