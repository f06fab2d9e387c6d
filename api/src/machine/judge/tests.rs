//! The limits of the judge, and each problem with its help.

use schemas::record::{Alert, Block, Held, example};
use schemas::{AlertKind, OrderId, TransferId, UnixSeconds};

use super::*;
use crate::machine::survey::{Disk, Orders, Subject, Webhooks};

const NOW: i64 = 1_790_000_000;

fn ago(seconds: i64) -> UnixMicros {
    UnixSeconds(NOW - seconds).micros()
}

/// A chain whose newest block has this age, in seconds.
fn chain(age: i64) -> Chain {
    let block = Block { timestamp: UnixSeconds(NOW - age), ..example::chain_record().block };
    Chain {
        blockchain: example::chain_record().blockchain,
        endpoints: 2,
        head: Some(block),
        confirmed: 20_999_988,
        confirmed_at: Some(UnixSeconds(NOW - age - CONFIRMED_SECONDS_MAX)),
        finalized: 20_999_936,
        halt: None,
        held: vec![],
        has_gap: false,
    }
}

fn group(oldest: Option<UnixMicros>, members: Option<Vec<(String, usize)>>) -> Group {
    let (stage, name) = ("processor", "processor.matching");
    Group { stage, name, lag: 3, oldest, members }
}

fn well() -> Survey {
    Survey {
        at: UnixSeconds(NOW).micros(),
        chains: vec![chain(HEAD_SECONDS_MAX)],
        groups: vec![
            group(Some(ago(LAG_SECONDS_MAX)), Some(vec![("processor-1".into(), 16)])),
            group(None, None),
        ],
        not_ready: None,
        orders: Some(Orders { pending: 2, ..Orders::default() }),
        webhooks: Webhooks {
            waiting: 1,
            oldest: Some(ago(WEBHOOK_SECONDS_MAX)),
            dead: Some(vec![]),
        },
        dead_letters: 1,
        alerts: vec![],
        stops: vec![],
        disk: Some(Disk { folder: "/data".into(), free_bytes: 5, all_bytes: 100 }),
        unknown: vec![],
    }
}

#[track_caller]
fn only(survey: &Survey, text: &str, help: &str) {
    let found = problems(survey);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].text.contains(text) && found[0].help.contains(help), "{found:?}");
}

#[test]
fn nothing_is_wrong_within_the_limits() {
    assert_eq!(problems(&well()), []);
}

#[test]
fn each_wrong_thing_is_named_with_what_helps() {
    let of = |change: &dyn Fn(&mut Survey)| {
        let mut survey = well();
        change(&mut survey);
        survey
    };
    let halt = Some(("no endpoint answers".to_owned(), ago(60)));
    let halted = of(&|survey| survey.chains[0].halt.clone_from(&halt));
    only(&halted, "eth is halted since 2026-09-21T14:12:20Z: no endpoint", "tidemark chain status");
    let old = of(&|survey| survey.chains = vec![chain(HEAD_SECONDS_MAX + 1)]);
    only(&old, "the newest block of eth is 301 s old", "tidemark doctor");
    let never = of(&|survey| survey.chains[0].head = None);
    only(&never, "eth was not scanned yet", "tidemark doctor");
    let held = vec![Held {
        block: example::chain_record().block,
        transfer: example::transfer().observation,
    }];
    let disputed = of(&|survey| survey.chains[0].held.clone_from(&held));
    only(&disputed, "endpoints of eth disagree about 1 transfers", "chain resolve eth 0xbb");
    let unconfirmed = of(&|survey| {
        let at = &mut survey.chains[0].confirmed_at;
        *at = at.map(|at| at.plus(-1));
    });
    only(&unconfirmed, "nothing in the last 3601 s of eth is confirmed", "tidemark doctor");
    let gap = of(&|survey| survey.chains[0].has_gap = true);
    only(&gap, "blocks of eth are gone", "Blocks that every endpoint has deleted");
    let away = of(&|survey| survey.not_ready = Some("it does not answer".into()));
    only(&away, "the process is not ready: it does not answer", "tidemark run");
    let nobody = of(&|survey| survey.groups = vec![group(None, Some(vec![]))]);
    only(&nobody, "no process of processor runs", "tidemark run processor");
    let behind = of(&|survey| survey.groups = vec![group(Some(ago(LAG_SECONDS_MAX + 1)), None)]);
    only(&behind, "processor is 61 s behind: 3 records wait", "What to monitor");
    let stopped = of(&|survey| survey.stops = vec!["USDC on all chains".into()]);
    only(&stopped, "payments are stopped: USDC", "tidemark stop SUBJECT --end");
    let full = of(&|survey| survey.disk.as_mut().unwrap().free_bytes = 100 / FREE_PART - 1);
    only(&full, "the disk of /data is nearly full", "data.dir");
    let id = OrderId(uuid::Uuid::from_u128(1));
    let overdue = Orders { overdue: Some((id, 2)), ..Orders::default() };
    let late = of(&|survey| survey.orders = Some(overdue));
    only(&late, "2 orders are pending an hour", "tidemark find 00000000-");
    let waiting = of(&|survey| survey.webhooks.oldest = Some(ago(WEBHOOK_SECONDS_MAX + 1)));
    only(&waiting, "1 webhooks wait, the oldest for 601 s", "tidemark webhook test");
    for subject in [Subject::Order(id), Subject::Transfer(TransferId(7))] {
        let dead = of(&|survey| survey.webhooks.dead = Some(vec![subject]));
        only(&dead, "1 webhooks were given up", "tidemark webhook dead redrive");
    }
    for (kind, help) in [
        (AlertKind::DeadLetter, "dead-letters list; tidemark alerts resolve x"),
        (AlertKind::DeadWebhook, "webhook dead redrive; tidemark alerts resolve x"),
        (AlertKind::LateFind, "monitor.md, Alerts; tidemark alerts resolve x"),
        (AlertKind::EndpointFailing, "monitor.md, Alerts"),
    ] {
        let alert = Alert { kind, alert_id: "x".to_owned(), ..example::alert() };
        let found = of(&|survey| survey.alerts = vec![alert.clone()]);
        only(&found, &format!("{kind} since 2026-09-21T14:13:32Z: transfer 7"), help);
    }
}

#[test]
fn of_many_alerts_the_newest_are_shown() {
    let alert = |at| Alert { raised_at: ago(at), message: format!("no {at}"), ..example::alert() };
    let mut survey = well();
    survey.alerts = (0..25).rev().map(alert).collect();
    let found = problems(&survey);
    assert_eq!(found.len(), ALERTS_MAX + 1);
    assert!(found[0].text.ends_with("no 0"), "{found:?}");
    assert_eq!(found[ALERTS_MAX].text, "5 more alerts are open");
}

#[test]
fn a_chain_that_is_not_configured_may_be_old() {
    let mut survey = well();
    survey.chains = vec![Chain { endpoints: 0, ..chain(HEAD_SECONDS_MAX + 1) }];
    assert_eq!(problems(&survey), []);
}
