//! The matching machine alone, on one core: inputs a second with a million open deposits, memory per deposit, and the
//! time to restore them from their changelog entries.

use std::time::{Duration, Instant};

use processor::machine::Machine;
use processor::machine::matching::{Effect, Input, State};
use processor::wire::restore;
use schemas::record::{DepositCommand, DepositCommandBody, OrderCommandBody};
use schemas::{Blockchain, Partition, UnixMicros, encode};
use testkit::measure::{TIME, head, open, order, rate, resident_bytes, transfer, wallet, watch};

const OPEN: usize = 1_000_000;
/// Transfers measured: each pays one of the open deposits.
const PAID: usize = 500_000;
/// Transfers in a block.
const BLOCK: usize = 100;
/// Inputs in a step: how often the state is committed.
const STEP: usize = 4096;

/// The orders machine's reply to a settle.
fn answer(effect: &Effect) -> Option<Input> {
    let Effect::Command(command) = effect else { return None };
    let OrderCommandBody::Settle(settle) = &command.body else { return None };
    Some(Input::Command(DepositCommand {
        order_id: command.order_id,
        slot: settle.slot,
        blockchain: settle.blockchain,
        wallet_address: wallet(),
        issued_at: UnixMicros(TIME.0 * 1_000_000),
        body: DepositCommandBody::Settled { transfer_id: settle.transfer_id },
    }))
}

/// A state with all deposits open.
fn opened() -> State {
    let mut state = State::new(Blockchain::Eth, Partition(0));
    let mut effects = Vec::new();
    for record in [watch(0), head(0)] {
        state.decide(&Input::Chain(record), &mut effects).unwrap();
    }
    for number in 0..OPEN {
        state.decide(&Input::Command(open(number)), &mut effects).unwrap();
        effects.clear();
        if number % STEP == 0 {
            state.commit();
        }
    }
    state.commit();
    state
}

/// Time to decode the entries of the open deposits and to restore them, and their size in bytes.
fn restore_time() -> (Duration, usize) {
    let entries = opened().snapshot();
    let encode = |(key, entry): &(String, _)| (key.clone(), encode(entry).unwrap());
    let encoded: Vec<(String, Vec<u8>)> = entries.iter().map(encode).collect();
    drop(entries);
    let bytes = encoded.iter().map(|(key, value)| key.len() + value.len()).sum();
    let mut state = State::new(Blockchain::Eth, Partition(0));
    let started = Instant::now();
    for (key, value) in &encoded {
        restore(&mut state, key.as_bytes(), Some(value)).unwrap();
    }
    state.commit();
    let time = started.elapsed();
    assert_eq!(state.deposit_count(), OPEN, "every deposit is back");
    (time, bytes)
}

fn main() {
    let pid = std::process::id();
    let before = resident_bytes(pid);
    let started = Instant::now();
    let mut state = opened();
    let opened = started.elapsed();
    let mut effects = Vec::new();
    assert_eq!(state.deposit_count(), OPEN, "every deposit is open");
    let bytes = (resident_bytes(pid) - before) / OPEN as u64;

    let mut inputs: Vec<Input> = Vec::new();
    for number in 0..PAID {
        // The blocks after the head at which the deposits opened.
        let height = number / BLOCK + 1;
        // Spread over all deposits.
        inputs.push(Input::Chain(transfer(number * 7919 % OPEN, height)));
        if number % BLOCK == BLOCK - 1 {
            inputs.push(Input::Chain(head(height)));
        }
    }
    let mut answers = Vec::new();
    let mut taken = 0;
    let mut matched = 0;
    let started = Instant::now();
    for chunk in inputs.chunks(STEP) {
        for input in chunk {
            state.decide(input, &mut effects).unwrap();
            answers.extend(effects.iter().filter_map(answer));
            effects.clear();
        }
        for input in &answers {
            state.decide(input, &mut effects).unwrap();
            matched += effects.iter().filter(|e| matches!(e, Effect::Transfer(..))).count();
            effects.clear();
        }
        taken += chunk.len() + answers.len();
        answers.clear();
        state.commit();
    }
    let time = started.elapsed();
    let (restored, bytes_restored) = restore_time();
    assert_eq!(matched, PAID, "every transfer pays");
    assert_ne!(order(0), order(1));
    println!("matching machine, one core, no log");
    println!("  open deposits         {OPEN}");
    println!("  bytes an open deposit {bytes}   (aim 200)");
    println!("  opens a second        {}", rate(OPEN, opened));
    println!(
        "  inputs a second       {}   (aim 1000000; {PAID} transfers, their heads and settles)",
        rate(taken, time)
    );
    println!(
        "  restore of {OPEN}    {:.2} s, of {} MiB of entries in memory",
        restored.as_secs_f64(),
        bytes_restored >> 20
    );
}
