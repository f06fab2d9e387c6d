//! Origin of the tables: the log they are made from, and their positions in it.

use schemas::{Incarnation, Partition, Topic};
use store::{Origin, Position};

use crate::tables::Tables;

pub(super) async fn tables_know_their_log(tables: &Tables) {
    let store = tables.open().await;
    assert_eq!((store.origin().await.unwrap(), store.positions().await.unwrap()), (None, vec![]));
    let origin = |second| Origin {
        installation: "kafka/a-cluster/shop.".to_owned(),
        incarnation: Incarnation(second),
    };
    for second in [0, 1_795_309_568] {
        store.set_origin(&origin(second)).await.unwrap();
    }
    let at = |topic, partition, next| Position { topic, partition: Partition(partition), next };
    let first = [at(Topic::Orders, 0, 3), at(Topic::Orders, 1, 5), at(Topic::Chains, 0, 1 << 39)];
    store.set_positions(&first).await.unwrap();
    store.set_positions(&[]).await.unwrap();
    store.set_positions(&[at(Topic::Orders, 1, 7), at(Topic::Deposits, 255, 1)]).await.unwrap();
    let mut found = store.positions().await.unwrap();
    found.sort_by_key(|at| (at.topic, at.partition));
    let mut expected =
        vec![first[0], at(Topic::Orders, 1, 7), first[2], at(Topic::Deposits, 255, 1)];
    expected.sort_by_key(|at| (at.topic, at.partition));
    assert_eq!(found, expected);
    assert_eq!(store.origin().await.unwrap(), Some(origin(1_795_309_568)));
}
