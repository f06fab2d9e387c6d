//! Records of a newer version: none may be skipped, as a newer program can read them.

use schemas::record::example;
use tidemark_processor::Error;

use super::*;

/// The record with `to` in the place of the first `from` in its value.
fn altered(record: &NewRecord, from: &[u8], to: &[u8]) -> NewRecord {
    let mut value = record.value.clone().unwrap();
    let at = value.windows(from.len()).position(|part| part == from).unwrap();
    value[at..at + to.len()].copy_from_slice(to);
    NewRecord { value: Some(value), ..record.clone() }
}

#[test]
fn a_newer_schema_or_word_stops_the_runner() {
    let good = order_command(&create('A', None));
    let id = good.value.clone().unwrap()[1..5].to_vec();
    let other = [id[0], id[1], id[2], !id[3]];
    for newer in [altered(&good, &id, &other), altered(&good, b"create", b"remake")] {
        let at = format!("{}@1", newer.to);
        let error = end_of_orders(vec![good.clone(), newer, good.clone()]);
        let Error::Newer(newer) = &error else { panic!("{error}") };
        assert_eq!(newer.at, at);
        assert!(error.to_string().contains("Start the newer version"), "{error}");
    }
}

/// The time of timers is bounded by all chains, also by those that only a newer version follows.
#[test]
fn the_newer_progress_of_a_chain_stops_the_runner() {
    let partition = Partition(Blockchain::Eth.index());
    let good = wrap(Topic::Chains, partition, "eth", &example::chain_progress());
    let id = good.value.clone().unwrap()[1..5].to_vec();
    let newer = altered(&good, &id, &[id[0], id[1], id[2], !id[3]]);
    let error = end_of_orders(vec![good, newer]);
    assert!(matches!(error, Error::Log(log::Error::Fatal(_))));
    assert!(error.to_string().contains("cannot read chains/0@1"), "{error}");
}
