//! Receivers that cannot be called: because of their URL, because of their addresses, or for lack of a route.

use schemas::record::{Attempt, Delivery};
use schemas::{AttemptOutcome, ReceiverPolicy, Topic, parse_network};

use super::deliverer::{DEFER, DISPATCH, RETRY, deliverer, dispatch, turn_until};
use super::receiver::answering;
use super::scripted::{Scripted, config, delivery, put};
use crate::config::Config;

fn dead(log: &Scripted) -> Vec<Delivery> {
    log.read(Topic::WebhooksDead)
}

/// Only an operator can allow the URL, and then resends the event.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_may_not_be_called_is_dead_at_once() {
    let (log, receiver) = answering(200).await;
    let refusing = Config { receivers: ReceiverPolicy::default(), ..config() };
    let urls = ["http://10.0.0.7/", "http://localhost/", "ftp://shop.example/", "nonsense"];
    let urls = urls.map(str::to_owned).into_iter().chain([receiver.url()]);
    for (number, url) in urls.enumerate() {
        dispatch(&log, &[&format!("event-{number}")], &url);
    }
    let mut first = deliverer(&log, &refusing);
    turn_until(&mut first, || dead(&log).len() == 5);
    let forbidden = log.outcomes();
    assert_eq!(forbidden.len(), 5);
    assert!(forbidden.iter().all(|(_, n, of)| (*n, *of) == (1, AttemptOutcome::Forbidden)));
    let causes = log.read::<Attempt>(Topic::WebhooksAttempts);
    assert!(causes.iter().all(|attempt| attempt.cause.starts_with("the URL must ")), "{causes:?}");
    assert_eq!(log.read::<Delivery>(RETRY), []);
    drop(first);
    let again = Delivery { manual: true, ..delivery("again", &receiver.url()) };
    log.append(vec![put(DISPATCH, "again", &again)]);
    let mut second = deliverer(&log, &config());
    turn_until(&mut second, || log.outcomes().len() == 6);
    assert_eq!(log.outcomes()[5].2, AttemptOutcome::Delivered);
}

/// The name may soon resolve to another address: an internal one is usually a mistake that gets fixed.
#[tokio::test(flavor = "multi_thread")]
async fn forbidden_address_of_a_name_keeps_the_schedule() {
    let log = Scripted::new();
    let networks = vec![parse_network("10.0.0.0/8").unwrap()];
    let inside = Config { receivers: ReceiverPolicy::new(Vec::new(), networks), ..config() };
    dispatch(&log, &["a"], "http://localhost/");
    let mut deliverer = deliverer(&log, &inside);
    turn_until(&mut deliverer, || log.read::<Delivery>(RETRY).len() == 1);
    assert_eq!(log.outcomes(), [("a".to_owned(), 1, AttemptOutcome::Forbidden)]);
    assert_eq!(dead(&log), []);
}

/// Such as a receiver with IPv6 alone, called from a host without it.
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_receiver_alone_is_given_up() {
    // The broadcast address cannot be connected to.
    let broadcast = "http://255.255.255.255/hooks";
    let for_a_day = Delivery {
        deferrals: 100,
        last_outcome: Some(AttemptOutcome::Local),
        ..delivery("a", broadcast)
    };
    let (log, receiver) = answering(200).await;
    log.append(vec![put(DISPATCH, "a", &for_a_day)]);
    let mut deliverer = deliverer(&log, &config());
    let deferred = || log.committed(DISPATCH).is_some_and(|at| at.offset.0 == 1);
    turn_until(&mut deliverer, deferred);
    assert_eq!((log.outcomes().len(), dead(&log).len()), (0, 0), "no other can be called either");
    dispatch(&log, &["b"], &receiver.url());
    turn_until(&mut deliverer, || log.outcomes().len() == 1);
    log.append(vec![put(DISPATCH, "a", &for_a_day)]);
    turn_until(&mut deliverer, || dead(&log).len() == 1);
    assert_eq!(log.outcomes()[1], ("a".to_owned(), 1, AttemptOutcome::CircuitOpen));
    assert_eq!(log.read::<Delivery>(DEFER), []);
}
