//! Real programs in which every process, the manager too, is killed, stopped and started again at random. What arrives
//! is right or an error says so, nothing is left over, and everything goes on.

use tranship as product;

mod block;
#[cfg(feature = "zcopy")]
mod cache;
mod camera;
mod files;
#[path = "../../../../block/tests/block/nbd.rs"]
mod nbd;
mod quotas;
mod relay;
#[path = "../../../../lab/testkit/tests/kill/rules.rs"]
mod rules;
mod scene;
mod seat;
#[path = "../block/writes.rs"]
mod writes;
