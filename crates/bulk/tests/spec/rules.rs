//! Each rule once, by name: the gaps of the published specification, and what an error looks like.

use crate::setup::{channel, does, pool, settle, wish};
use tranship_bulk::spec::{BufferId, Event, Model, Op, Outcome, Piece, Place};
use tranship_bulk::{Access, ChannelState, Kind, Trust};

const B: BufferId = BufferId { pool: 0, index: 0 };

fn moves(domain: u8, channel: u8) -> Op {
    Op::Move {
        domain,
        channel,
        buffer: B,
        meta: 7,
    }
}

fn copies(domain: u8, channel: u8) -> Op {
    Op::Copy {
        domain,
        channel,
        buffer: B,
        meta: 7,
    }
}

fn releases(domain: u8, channel: u8) -> Op {
    Op::Release {
        domain,
        channel,
        buffer: B,
        meta: 7,
    }
}

fn passes(domain: u8, channel: u8) -> Op {
    Op::Pass {
        domain,
        channel,
        buffer: B,
        meta: 7,
    }
}

/// Two domains, one channel, one buffer.
fn simple(trust: Trust) -> Model {
    let mut model = Model::new(2);
    let c = channel(&mut model, 0, 1, trust);
    pool(&mut model, 0, 1, false, &[(0, c)]);
    model
}

#[test]
fn in_transit_nobody_has_access() {
    let mut model = simple(Trust::None);
    does(&mut model, moves(0, 0));
    assert_eq!(model.buffers[&B].place, Place::Transit(0));
    assert_eq!([0, 1].map(|d| model.access(B, d)), [Access::None; 2]);
    settle(&mut model);
    assert_eq!(
        [0, 1].map(|d| model.access(B, d)),
        [Access::None, Access::ReadWrite]
    );
}

#[test]
fn a_copied_buffer_stays_with_its_owner_until_the_release_has_arrived() {
    let mut model = simple(Trust::None);
    does(&mut model, copies(0, 0));
    assert_eq!(model.step(&moves(0, 0)), Err(Kind::BufferState));
    settle(&mut model);
    assert_eq!([0, 1].map(|d| model.access(B, d)), [Access::Read; 2]);
    assert_eq!(model.step(&moves(0, 0)), Err(Kind::BufferState));
    does(&mut model, releases(1, 0));
    assert_eq!(
        [0, 1].map(|d| model.access(B, d)),
        [Access::Read, Access::None]
    );
    assert_eq!(model.step(&releases(1, 0)), Err(Kind::BufferNotACopy));
    settle(&mut model);
    assert_eq!(model.access(B, 0), Access::ReadWrite);
}

#[test]
fn copies_are_counted() {
    let mut model = simple(Trust::None);
    does(&mut model, copies(0, 0));
    does(&mut model, copies(0, 0));
    settle(&mut model);
    does(&mut model, releases(1, 0));
    settle(&mut model);
    assert_eq!([0, 1].map(|d| model.access(B, d)), [Access::Read; 2]);
    does(&mut model, releases(1, 0));
    settle(&mut model);
    assert_eq!(model.access(B, 0), Access::ReadWrite);
}

#[test]
fn in_a_circle_the_first_copy_is_released_last() {
    let mut model = Model::new(3);
    let c = [(0, 1), (1, 2), (2, 1)].map(|(a, b)| channel(&mut model, a, b, Trust::None));
    pool(&mut model, 0, 1, true, &[(0, c[0]), (1, c[1]), (2, c[2])]);
    for (domain, over) in [(0, c[0]), (1, c[1]), (2, c[2])] {
        does(&mut model, copies(domain, over));
        settle(&mut model);
    }
    // A and B would support each other, and nothing would lead to the owner.
    assert_eq!(model.step(&releases(1, c[0])), Err(Kind::BufferRefcount));
    for (domain, over) in [(1, c[2]), (2, c[1]), (1, c[0])] {
        does(&mut model, releases(domain, over));
        settle(&mut model);
    }
    assert_eq!(model.access(B, 0), Access::ReadWrite);
}

#[test]
fn checks_come_in_their_order() {
    let mut model = Model::new(2);
    let c = channel(&mut model, 0, 1, Trust::Full);
    let other = channel(&mut model, 0, 1, Trust::Half);
    pool(&mut model, 0, 1, false, &[]);
    // Everything is wrong for domain 1: first the direction, then the assignment, then the owner.
    assert_eq!(model.step(&moves(1, c)), Err(Kind::ChannelDirection));
    assert_eq!(model.step(&passes(1, c)), Err(Kind::PoolNotAssigned));
    assert_eq!(model.step(&releases(0, c)), Err(Kind::ChannelDirection));
    does(
        &mut model,
        Op::Assign {
            domain: 0,
            channel: c,
            pool: 0,
        },
    );
    let again = Op::Assign {
        domain: 0,
        channel: c,
        pool: 0,
    };
    assert_eq!(model.step(&again), Err(Kind::PoolAlreadyAssigned));
    settle(&mut model);
    assert_eq!(model.step(&again), Err(Kind::PoolAlreadyAssigned));
    let differs = Op::Assign {
        domain: 0,
        channel: other,
        pool: 0,
    };
    assert_eq!(model.step(&differs), Err(Kind::ChannelTrust));
    assert_eq!(model.step(&passes(1, c)), Err(Kind::BufferNotOwned));
    assert_eq!(model.step(&releases(1, c)), Err(Kind::BufferNotACopy));
    assert_eq!(model.step(&passes(0, c)), Err(Kind::ChannelDirection));
    let forward = Op::Assign {
        domain: 1,
        channel: other,
        pool: 0,
    };
    assert_eq!(model.step(&forward), Err(Kind::ChannelTrust));
    does(
        &mut model,
        Op::Close {
            domain: 0,
            channel: c,
        },
    );
    assert_eq!(model.step(&passes(0, c)), Err(Kind::ChannelState));
}

#[test]
fn a_veto_changes_nothing_and_leaves_the_trust_open() {
    let mut model = Model::new(2);
    let c = channel(&mut model, 0, 1, Trust::Full);
    let other = channel(&mut model, 0, 1, Trust::Half);
    pool(&mut model, 0, 1, false, &[]);
    does(
        &mut model,
        Op::Veto {
            domain: 1,
            channel: c,
            veto: true,
        },
    );
    let before = model.clone();
    does(
        &mut model,
        Op::Assign {
            domain: 0,
            channel: c,
            pool: 0,
        },
    );
    settle(&mut model);
    assert_eq!(model, before);
    does(
        &mut model,
        Op::Assign {
            domain: 0,
            channel: other,
            pool: 0,
        },
    );
    settle(&mut model);
    assert_eq!(model.pools[&0].trust, Some(Trust::Half));
}

#[test]
fn a_pool_leaves_only_when_nothing_of_it_is_out() {
    let mut model = simple(Trust::Half);
    let remove = Op::Remove {
        domain: 0,
        channel: 0,
        pool: 0,
    };
    does(&mut model, moves(0, 0));
    settle(&mut model);
    // Domain 0 has nothing of it; domain 1 has, and says so.
    does(&mut model, remove.clone());
    does(
        &mut model,
        Op::Deliver {
            domain: 1,
            channel: 0,
        },
    );
    let told = does(
        &mut model,
        Op::Deliver {
            domain: 0,
            channel: 0,
        },
    );
    assert_eq!(
        told,
        Outcome::Took(vec![Event::RemoveDone(0, Err(Kind::PoolInUse))])
    );
    does(&mut model, passes(1, 0));
    settle(&mut model);
    does(&mut model, remove);
    settle(&mut model);
    assert_eq!(model.step(&moves(0, 0)), Err(Kind::PoolNotAssigned));
    does(&mut model, Op::DestroyPool { domain: 0, pool: 0 });
}

#[test]
fn teardown_waits_until_everything_is_given_back() {
    let mut model = simple(Trust::Half);
    does(&mut model, moves(0, 0));
    settle(&mut model);
    does(
        &mut model,
        Op::Close {
            domain: 0,
            channel: 0,
        },
    );
    settle(&mut model);
    let state = |model: &Model, end: usize| model.channels[&0].ends[end].as_ref().map(|e| e.state);
    assert_eq!(state(&model, 0), Some(ChannelState::Teardown));
    assert_eq!(model.step(&copies(0, 0)), Err(Kind::ChannelState));
    does(&mut model, passes(1, 0));
    settle(&mut model);
    assert_eq!(
        [0, 1].map(|end| state(&model, end)),
        [Some(ChannelState::Closed); 2]
    );
    assert_eq!(model.access(B, 0), Access::ReadWrite);
    does(&mut model, Op::DestroyPool { domain: 0, pool: 0 });
}

#[test]
fn what_the_dead_had_comes_back_and_what_they_sent_stays() {
    let mut model = simple(Trust::Producer);
    does(&mut model, moves(0, 0));
    settle(&mut model);
    does(&mut model, passes(1, 0));
    does(&mut model, Op::Kill { domain: 1 });
    let took = does(
        &mut model,
        Op::Deliver {
            domain: 0,
            channel: 0,
        },
    );
    assert_eq!(took, Outcome::Took(vec![Event::Passed(B, 7)]));
    does(&mut model, moves(0, 0));
    assert_eq!(model.buffers[&B].place, Place::Stranded);
    let gone = does(
        &mut model,
        Op::Deliver {
            domain: 0,
            channel: 0,
        },
    );
    assert_eq!(gone, Outcome::Took(vec![Event::Gone(vec![B])]));
    assert_eq!(model.access(B, 0), Access::ReadWrite);
}

#[test]
fn trust_says_what_the_kernel_allows() {
    for (trust, creator, other) in [
        (Trust::Full, Access::ReadWrite, Access::ReadWrite),
        (Trust::Half, Access::None, Access::ReadWrite),
        (Trust::Producer, Access::ReadWrite, Access::Read),
        (Trust::None, Access::None, Access::ReadWrite),
    ] {
        let mut model = simple(trust);
        does(&mut model, moves(0, 0));
        settle(&mut model);
        assert_eq!(model.permitted(B, 0), creator, "{trust:?}");
        assert_eq!(model.permitted(B, 1), other, "{trust:?}");
        let write = Op::Write {
            domain: 1,
            buffer: B,
            data: 1,
        };
        let written = model.step(&write).map(|_| ());
        let refused = trust == Trust::Producer;
        assert_eq!(
            written,
            if refused {
                Err(Kind::BufferState)
            } else {
                Ok(())
            }
        );
    }
}

#[test]
fn refused_binds_leave_the_creator_waiting() {
    let mut model = Model::new(3);
    let create = Op::Create {
        domain: 0,
        direction: tranship_bulk::Direction::Sink,
        wish: wish(Trust::Full),
    };
    does(&mut model, create);
    does(
        &mut model,
        Op::Bind {
            domain: 1,
            channel: 0,
            wish: wish(Trust::None),
        },
    );
    let second = Op::Bind {
        domain: 2,
        channel: 0,
        wish: wish(Trust::Full),
    };
    assert_eq!(model.step(&second), Err(Kind::InvalidEndpoint));
    does(
        &mut model,
        Op::Deliver {
            domain: 0,
            channel: 0,
        },
    );
    let told = does(
        &mut model,
        Op::Deliver {
            domain: 1,
            channel: 0,
        },
    );
    assert_eq!(
        told,
        Outcome::Took(vec![Event::Bound(Err(Kind::ChannelBind))])
    );
    does(&mut model, second);
    settle(&mut model);
    let states = model.channels[&0]
        .ends
        .each_ref()
        .map(|e| e.as_ref().map(|e| e.state));
    assert_eq!(states, [Some(ChannelState::Connected); 2]);
}

/// Two buffers, as one aggregate of domain 0.
fn gathered() -> Model {
    let mut model = Model::new(2);
    let c = channel(&mut model, 0, 1, Trust::None);
    pool(&mut model, 0, 2, false, &[(0, c)]);
    for (at, index) in [(0, 0), (1, 1), (1, 0)] {
        let piece = Piece {
            buffer: BufferId { pool: 0, index },
            offset: 0,
            len: 4096,
        };
        let (domain, aggregate) = (0, 0);
        does(
            &mut model,
            Op::Insert {
                domain,
                aggregate,
                at,
                piece,
            },
        );
    }
    model
}

fn sends(copies: bool) -> Op {
    Op::SendAll {
        domain: 0,
        aggregate: 0,
        channel: 0,
        copies,
        meta: 7,
    }
}

#[test]
fn an_aggregate_goes_whole_or_not_at_all() {
    let mut model = gathered();
    does(&mut model, copies(0, 0));
    let before = model.clone();
    assert_eq!(model.step(&sends(false)), Err(Kind::BufferState));
    assert_eq!(model, before);
    settle(&mut model);
    does(&mut model, releases(1, 0));
    settle(&mut model);
    does(&mut model, sends(false));
    let both = [0, 1].map(|index| BufferId { pool: 0, index });
    assert!(both.map(|b| model.buffers[&b].place) == [Place::Transit(0); 2]);
    let deliver = Op::Deliver {
        domain: 1,
        channel: 0,
    };
    let Outcome::Took(told) = does(&mut model, deliver) else {
        panic!("nothing came");
    };
    let [Event::All(false, pieces, 7)] = &told[..] else {
        panic!("{told:?}");
    };
    let order: Vec<u8> = pieces.iter().map(|piece| piece.buffer.index).collect();
    assert_eq!(order, [0, 0, 1]);
    assert!(both.map(|b| model.access(b, 1)) == [Access::ReadWrite; 2]);
    assert_eq!(model.step(&sends(false)), Err(Kind::BufferNotOwned));
    assert_eq!(model.step(&sends(true)), Err(Kind::BufferInvalid));
}

#[test]
fn what_is_mapped_goes_nowhere() {
    let mut model = gathered();
    let (domain, aggregate) = (0, 0);
    does(&mut model, Op::Map { domain, aggregate });
    assert!(model.mapped(B, 0) && !model.mapped(B, 1));
    for op in [moves(0, 0), copies(0, 0), sends(false), sends(true)] {
        assert_eq!(model.step(&op), Err(Kind::BufferState), "{op:?}");
    }
    let write = Op::Write {
        domain,
        buffer: B,
        data: 3,
    };
    does(&mut model, write);
    does(&mut model, Op::Unmap { domain, aggregate });
    assert_eq!(
        model.step(&Op::Unmap { domain, aggregate }),
        Err(Kind::BadArgument)
    );
    does(&mut model, sends(true));
    // The sink's copies are shown too, and are not released meanwhile.
    settle(&mut model);
    let piece = Piece {
        buffer: B,
        offset: 0,
        len: 4096,
    };
    let (domain, at) = (1, 0);
    does(
        &mut model,
        Op::Insert {
            domain,
            aggregate,
            at,
            piece,
        },
    );
    does(&mut model, Op::Map { domain, aggregate });
    assert_eq!(model.step(&releases(1, 0)), Err(Kind::BufferState));
    does(&mut model, Op::Unmap { domain, aggregate });
    does(&mut model, releases(1, 0));
}
