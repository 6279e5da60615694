//! Each rule once, by name: the gaps of the published specifications, and the form of an error.

use tranship_model::explore::{Does, channel, channel_of, pool, same_but_agreed};
use tranship_model::{
    Access, BufferId, Carries, ErrorKind, Event, Hold, Model, Op, Outcome, Trust, Way,
};

const B: BufferId = BufferId { pool: 0, index: 0 };

fn allocs(domain: u8) -> Op {
    Op::Alloc {
        domain,
        pool: 0,
        data: 5,
    }
}

fn moves(domain: u8, channel: u8) -> Op {
    Op::Move {
        domain,
        channel,
        buffer: B,
        word: 7,
    }
}

fn sends(domain: u8, channel: u8, keep: bool) -> Op {
    Op::Send {
        domain,
        channel,
        buffer: B,
        keep,
        word: 7,
    }
}

fn passes(domain: u8, channel: u8) -> Op {
    Op::Pass {
        domain,
        channel,
        buffer: B,
        word: 7,
    }
}

fn takes(domain: u8, channel: u8) -> Op {
    Op::Deliver { domain, channel }
}

fn freezes(domain: u8) -> Op {
    Op::Freeze { domain, buffer: B }
}

fn drops(domain: u8) -> Op {
    Op::Drop { domain, buffer: B }
}

fn exclusive(domain: u8) -> Op {
    Op::Exclusive { domain, buffer: B }
}

fn writes(domain: u8) -> Op {
    Op::Write {
        domain,
        buffer: B,
        data: 9,
    }
}

/// Two domains, one channel, one buffer, filled.
fn simple(way: Way, trust: Trust) -> Model {
    let mut model = Model::new(way, 2);
    channel(&mut model, 0, 1);
    pool(&mut model, 0, trust, 1, false);
    model.must(&allocs(0));
    model
}

fn all(model: &mut Model, ops: &[Op]) {
    for op in ops {
        model.must(op);
    }
}

fn accesses(model: &Model) -> [Access; 2] {
    [0, 1].map(|domain| model.access(B, domain))
}

#[test]
fn in_transit_nobody_has_access() {
    let mut model = simple(Way::Shared, Trust::Half);
    model.must(&moves(0, 0));
    assert_eq!(accesses(&model), [Access::None; 2]);
    assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
    let event = Event {
        carries: Carries::Moved,
        buffers: vec![B],
        word: 7,
    };
    assert_eq!(model.must(&takes(1, 0)), Outcome::Took(event));
    assert_eq!(accesses(&model), [Access::None, Access::ReadWrite]);
}

/// The pool has the memory again when the last holder has let it go, and not before.
#[test]
fn what_is_shared_is_reused_after_the_last_release() {
    let mut model = simple(Way::Shared, Trust::Producer);
    all(&mut model, &[freezes(0), sends(0, 0, true)]);
    assert_eq!(model.step(&moves(0, 0)), Err(ErrorKind::BufferState));
    all(&mut model, &[drops(0)]);
    assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
    all(&mut model, &[takes(1, 0)]);
    assert_eq!(accesses(&model), [Access::None, Access::Read]);
    assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
    all(&mut model, &[drops(1)]);
    assert_eq!(model.step(&drops(1)), Err(ErrorKind::BufferInvalid));
    all(&mut model, &[allocs(0)]);
    assert_eq!(accesses(&model), [Access::ReadWrite, Access::None]);
}

/// A sender that kept a handle of a sent buffer writes it only as a new buffer. The last handle of a buffer that was
/// never sent is exclusive again.
#[test]
fn exclusive_again_only_if_nobody_was_sent_it() {
    for way in [Way::Inside, Way::Shared, Way::Carried] {
        let mut model = simple(way, Trust::Full);
        let clones = Op::Clone {
            domain: 0,
            buffer: B,
        };
        all(&mut model, &[freezes(0), clones]);
        assert_eq!(model.step(&exclusive(0)), Err(ErrorKind::BufferState));
        all(&mut model, &[drops(0), exclusive(0), writes(0), freezes(0)]);
        all(&mut model, &[sends(0, 0, true)]);
        let at_once = model.clone().step(&exclusive(0));
        let carried = way == Way::Carried;
        assert_eq!(at_once.is_ok(), carried, "its bytes are on their way");
        all(&mut model, &[takes(1, 0)]);
        if !carried {
            assert_eq!(model.step(&exclusive(0)), Err(ErrorKind::BufferState));
            all(&mut model, &[drops(1)]);
        }
        // Inside a process there are no ids that others could know.
        let again = model.step(&exclusive(0));
        assert_eq!(again.is_ok(), way != Way::Shared, "{way:?}: {again:?}");
    }
}

#[test]
fn copies_are_counted() {
    let mut model = simple(Way::Shared, Trust::Producer);
    all(
        &mut model,
        &[freezes(0), sends(0, 0, true), sends(0, 0, false)],
    );
    all(&mut model, &[takes(1, 0), takes(1, 0)]);
    let two = Hold::Shared {
        handles: 2,
        given: false,
    };
    assert_eq!(model.hold(B, 1), Some(two));
    all(&mut model, &[drops(1)]);
    assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
    all(&mut model, &[drops(1), allocs(0)]);
}

/// The report's counterexample to its own reachability: A and B hold copies of each other's. Each counts for itself, so
/// any order will do.
#[test]
fn copies_in_a_circle_are_released_in_any_order() {
    let mut start = Model::new(Way::Shared, 3);
    for (a, b) in [(0, 1), (1, 2), (2, 1)] {
        channel(&mut start, a, b);
    }
    pool(&mut start, 0, Trust::Producer, 1, true);
    all(&mut start, &[allocs(0), freezes(0), sends(0, 0, false)]);
    all(&mut start, &[takes(1, 0), sends(1, 1, true), takes(2, 1)]);
    all(&mut start, &[sends(2, 2, true), takes(1, 2)]);
    for order in [[1, 1, 2], [1, 2, 1], [2, 1, 1]] {
        let mut model = start.clone();
        for domain in order {
            assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
            model.must(&drops(domain));
        }
        model.must(&allocs(0));
    }
}

#[test]
fn checks_come_in_their_order() {
    let mut model = Model::new(Way::Shared, 3);
    channel(&mut model, 0, 1);
    channel_of(&mut model, 1, 2, &[Trust::Producer]);
    pool(&mut model, 0, Trust::Full, 1, false);
    all(&mut model, &[allocs(0)]);
    assert_eq!(model.step(&moves(1, 0)), Err(ErrorKind::InvalidEndpoint));
    assert_eq!(model.step(&sends(0, 0, true)), Err(ErrorKind::BufferState));
    assert_eq!(model.step(&passes(1, 0)), Err(ErrorKind::BufferInvalid));
    all(&mut model, &[moves(0, 0), takes(1, 0)]);
    // The domain was not allowed to send from this pool; the level is not even asked for.
    assert_eq!(model.step(&moves(1, 1)), Err(ErrorKind::Refused));
    assert_eq!(model.access(B, 1), Access::ReadWrite);
    all(&mut model, &[passes(1, 0)]);
    let closes = Op::Close {
        domain: 1,
        channel: 0,
    };
    all(&mut model, &[closes]);
    let back = Op::TakeBack {
        domain: 0,
        channel: 0,
    };
    // Messages from before the end are there.
    assert!(matches!(model.must(&back), Outcome::Took(_)));
    assert_eq!(model.step(&moves(0, 0)), Err(ErrorKind::BufferState));
    assert_eq!(model.step(&sends(0, 0, true)), Err(ErrorKind::PeerGone));
    assert_eq!(model.step(&writes(0)), Err(ErrorKind::BufferState));
}

#[test]
fn a_refused_pool_changes_nothing() {
    let mut model = Model::new(Way::Shared, 2);
    channel(&mut model, 0, 1);
    channel_of(&mut model, 0, 1, &[Trust::Producer]);
    pool(&mut model, 0, Trust::Half, 1, false);
    let veto = |veto| Op::Veto {
        domain: 1,
        channel: 0,
        veto,
    };
    all(&mut model, &[allocs(0), veto(true)]);
    let before = model.clone();
    assert_eq!(model.step(&moves(0, 0)), Err(ErrorKind::Refused));
    assert_eq!(model.step(&moves(0, 1)), Err(ErrorKind::ChannelTrust));
    assert_eq!(model, before);
    // One agreement lasts for ever.
    all(
        &mut model,
        &[veto(false), moves(0, 0), veto(true), takes(1, 0)],
    );
    all(&mut model, &[drops(1), allocs(0), moves(0, 0)]);
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    for (ends, says) in [
        (
            Op::Close {
                domain: 0,
                channel: 0,
            },
            ErrorKind::PeerGone,
        ),
        (Op::Kill { domain: 0 }, ErrorKind::PeerDied),
    ] {
        let mut model = simple(Way::Shared, Trust::Half);
        all(&mut model, &[moves(0, 0), ends]);
        assert!(matches!(model.must(&takes(1, 0)), Outcome::Took(_)));
        assert_eq!(model.step(&takes(1, 0)), Err(says));
        // The buffer stays what it is, whichever domain is gone.
        all(&mut model, &[writes(1)]);
        assert_eq!(model.step(&passes(1, 0)), Err(ErrorKind::PeerGone));
        all(&mut model, &[drops(1)]);
        assert!(model.buffers.is_empty());
    }
}

#[test]
fn what_the_dead_had_is_the_pools_and_what_they_sent_stays() {
    let mut start = simple(Way::Shared, Trust::Half);
    all(&mut start, &[moves(0, 0), takes(1, 0)]);
    let mut model = start.clone();
    all(&mut model, &[Op::Kill { domain: 1 }, allocs(0)]);
    let mut model = start;
    all(&mut model, &[passes(1, 0), Op::Kill { domain: 1 }]);
    assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
    let back = Op::TakeBack {
        domain: 0,
        channel: 0,
    };
    assert!(matches!(model.must(&back), Outcome::Took(_)));
    assert_eq!(model.step(&sends(0, 0, true)), Err(ErrorKind::PeerGone));
    // The buffer was sent: the memory is written as another buffer.
    assert_eq!(model.step(&writes(0)), Err(ErrorKind::BufferState));
    all(&mut model, &[drops(0), allocs(0), writes(0)]);
}

/// Domains in the middle may die: a buffer that they sent on is counted by its holders.
#[test]
fn what_was_sent_on_outlives_the_one_in_the_middle() {
    for dead in [0, 1] {
        let mut model = Model::new(Way::Shared, 3);
        channel(&mut model, 0, 1);
        channel(&mut model, 1, 2);
        pool(&mut model, 0, Trust::Producer, 1, true);
        all(&mut model, &[allocs(0), moves(0, 0), takes(1, 0)]);
        all(&mut model, &[sends(1, 1, false), Op::Kill { domain: dead }]);
        all(&mut model, &[takes(2, 1)]);
        assert_eq!(model.access(B, 2), Access::Read);
        if dead == 1 {
            assert_eq!(model.step(&allocs(0)), Err(ErrorKind::OutOfMemory));
            all(&mut model, &[drops(2), allocs(0)]);
        }
    }
}

#[test]
fn trust_says_what_the_kernel_allows() {
    for (trust, writer, other) in [
        (Trust::Full, Some(Access::ReadWrite), Access::ReadWrite),
        (Trust::Half, Some(Access::None), Access::ReadWrite),
        (Trust::Producer, Some(Access::ReadWrite), Access::Read),
    ] {
        let mut model = simple(Way::Shared, trust);
        all(&mut model, &[moves(0, 0), takes(1, 0)]);
        assert_eq!(model.permitted(B, 0), writer, "{trust:?}");
        assert_eq!(model.permitted(B, 1), Some(other), "{trust:?}");
        let refused = trust == Trust::Producer;
        assert_eq!(model.step(&writes(1)).is_err(), refused, "{trust:?}");
        // A buffer that was not moved can be read by its receivers.
        let mut model = simple(Way::Shared, trust);
        all(&mut model, &[freezes(0), sends(0, 0, true), takes(1, 0)]);
        let shared = if trust == Trust::Full {
            Access::ReadWrite
        } else {
            Access::Read
        };
        assert_eq!(model.permitted(B, 1), Some(shared), "{trust:?}");
        assert_eq!(model.step(&writes(1)), Err(ErrorKind::BufferState));
    }
}

/// A copied or carried buffer is another buffer, the receiver's own, and there is nothing to give back.
#[test]
fn a_copy_is_the_receivers() {
    for (way, trust) in [
        (Way::Shared, Trust::None),
        (Way::Carried, Trust::None),
        (Way::Carried, Trust::Full),
    ] {
        let mut model = simple(way, trust);
        all(&mut model, &[moves(0, 0)]);
        let on_its_way = model.clone().step(&allocs(0));
        let reads_it_later = way == Way::Shared;
        assert_eq!(on_its_way.is_err(), reads_it_later, "{way:?}");
        let Outcome::Took(event) = model.must(&takes(1, 0)) else {
            panic!("nothing came");
        };
        let copy = event.buffers[0];
        assert_eq!(copy.pool, tranship_model::copies_of(1));
        assert_eq!(model.buffers[&copy].data, 5);
        assert_eq!(model.access(copy, 1), Access::ReadWrite);
        let gives_back = Op::Pass {
            domain: 1,
            channel: 0,
            buffer: copy,
            word: 0,
        };
        assert_eq!(model.step(&gives_back), Err(ErrorKind::BufferNotOwned));
        all(&mut model, &[allocs(0)]);
    }
}

/// At `producer` a move shares the only reference. It is handed back once, and a clone is not.
#[test]
fn what_is_given_at_producer_is_shared_and_handed_back_once() {
    let mut model = simple(Way::Shared, Trust::Producer);
    all(&mut model, &[moves(0, 0)]);
    let event = Event {
        carries: Carries::Shared,
        buffers: vec![B],
        word: 7,
    };
    assert_eq!(model.must(&takes(1, 0)), Outcome::Took(event.clone()));
    assert_eq!(accesses(&model), [Access::None, Access::Read]);
    assert_eq!(model.step(&moves(1, 0)), Err(ErrorKind::InvalidEndpoint));
    let clones = Op::Clone {
        domain: 1,
        buffer: B,
    };
    all(&mut model, &[clones, passes(1, 0)]);
    assert_eq!(model.step(&passes(1, 0)), Err(ErrorKind::BufferNotOwned));
    let back = Op::TakeBack {
        domain: 0,
        channel: 0,
    };
    assert_eq!(model.must(&back), Outcome::Took(event));
    assert_eq!(accesses(&model), [Access::Read; 2]);
    assert_eq!(model.step(&exclusive(0)), Err(ErrorKind::BufferState));
    // A buffer that was shared is not given back.
    let mut model = simple(Way::Shared, Trust::Producer);
    all(&mut model, &[freezes(0), sends(0, 0, false), takes(1, 0)]);
    assert_eq!(model.step(&passes(1, 0)), Err(ErrorKind::BufferNotOwned));
}

/// Pieces are given to be written together, or shared together.
#[test]
fn an_aggregate_that_is_given_is_written_as_a_whole_or_not_at_all() {
    let mut model = Model::new(Way::Shared, 2);
    channel(&mut model, 0, 1);
    let ids = [Trust::Half, Trust::Producer].map(|trust| {
        let pool = pool(&mut model, 0, trust, 1, false);
        let (domain, data) = (0, 5);
        model.must(&Op::Alloc { domain, pool, data });
        BufferId { pool, index: 0 }
    });
    model.must(&Op::MoveAll {
        domain: 0,
        channel: 0,
        buffers: ids.to_vec(),
        word: 7,
    });
    let event = Event {
        carries: Carries::Aggregate,
        buffers: ids.to_vec(),
        word: 7,
    };
    assert_eq!(model.must(&takes(1, 0)), Outcome::Took(event));
    let gives_back = ids.map(|buffer| {
        model.step(&Op::Pass {
            domain: 1,
            channel: 0,
            buffer,
            word: 0,
        })
    });
    let given = [Err(ErrorKind::BufferNotOwned), Ok(Outcome::Done)];
    assert_eq!(gives_back, given);
}

#[test]
fn an_aggregate_goes_whole_or_not_at_all() {
    let mut model = Model::new(Way::Shared, 2);
    channel_of(&mut model, 0, 1, &[Trust::Producer, Trust::Half]);
    let (first, second) = (
        pool(&mut model, 0, Trust::Half, 2, false),
        pool(&mut model, 0, Trust::Full, 1, false),
    );
    let ids = [(first, 0), (first, 1), (second, 0)].map(|(pool, index)| BufferId { pool, index });
    for id in ids {
        let (domain, pool) = (0, id.pool);
        let alloc = Op::Alloc {
            domain,
            pool,
            data: id.index,
        };
        model.must(&alloc);
        model.must(&Op::Freeze { domain, buffer: id });
    }
    let sends = |buffers: &[BufferId]| Op::SendAll {
        domain: 0,
        channel: 0,
        buffers: buffers.to_vec(),
        word: 7,
    };
    assert_eq!(model.step(&sends(&ids)), Err(ErrorKind::ChannelTrust));
    assert!(model.channels[&0].queue.is_empty());
    model.must(&sends(&[ids[1], ids[0]]));
    let event = Event {
        carries: Carries::Aggregate,
        buffers: vec![ids[1], ids[0]],
        word: 7,
    };
    assert_eq!(model.must(&takes(1, 0)), Outcome::Took(event));
    let one = Hold::Shared {
        handles: 1,
        given: false,
    };
    assert_eq!(model.hold(ids[0], 1), Some(one));
}

#[test]
fn a_full_channel_changes_nothing() {
    let mut model = simple(Way::Shared, Trust::Half);
    let says = Op::Inline {
        domain: 0,
        channel: 0,
        word: 1,
    };
    for _ in 0..4 {
        model.must(&says);
    }
    assert_eq!(model.step(&says), Err(ErrorKind::Full));
    assert_eq!(model.step(&moves(0, 0)), Err(ErrorKind::Full));
    assert_eq!(model.access(B, 0), Access::ReadWrite);
    all(&mut model, &[takes(1, 0), moves(0, 0)]);
}

/// The source hears of it after the messages that came back before, also when the sink is gone; the memory is free at
/// once.
#[test]
fn a_release_may_be_told() {
    for (way, named) in [
        (Way::Inside, true),
        (Way::Shared, true),
        (Way::Carried, false),
    ] {
        let mut model = simple(way, Trust::Half);
        all(&mut model, &[freezes(0), sends(0, 0, false)]);
        let Outcome::Took(came) = model.must(&takes(1, 0)) else {
            panic!("nothing came");
        };
        let release = Op::Release {
            domain: 1,
            channel: 0,
            buffer: came.buffers[0],
            word: 3,
        };
        model.must(&release);
        assert!(model.buffers.is_empty(), "{way:?}: nobody has it");
        assert_eq!(model.step(&release), Err(ErrorKind::BufferInvalid));
        model.must(&Op::Close {
            domain: 1,
            channel: 0,
        });
        let back = Op::TakeBack {
            domain: 0,
            channel: 0,
        };
        let told = Event {
            carries: Carries::Released { named },
            buffers: Vec::new(),
            word: 3,
        };
        assert_eq!(model.must(&back), Outcome::Took(told));
    }
}

#[test]
fn a_moved_aggregate_is_one_move_of_each() {
    let mut model = Model::new(Way::Shared, 2);
    channel(&mut model, 0, 1);
    pool(&mut model, 0, Trust::Half, 2, false);
    all(&mut model, &[allocs(0), allocs(0)]);
    let buffers: Vec<BufferId> = model.buffers.keys().copied().collect();
    let moves = Op::MoveAll {
        domain: 0,
        channel: 0,
        buffers: buffers.clone(),
        word: 1,
    };
    // No handle is exclusive if one of them is shared.
    let mut other = model.clone();
    all(&mut other, &[freezes(0)]);
    let before = other.clone();
    assert_eq!(other.step(&moves), Err(ErrorKind::BufferState));
    assert!(same_but_agreed(&other, &before));
    model.must(&moves);
    let access = |model: &Model| [0, 1].map(|d| buffers.iter().map(|b| model.access(*b, d)).max());
    assert_eq!(access(&model), [Some(Access::None); 2], "on its way");
    model.must(&takes(1, 0));
    assert_eq!(
        access(&model),
        [Some(Access::None), Some(Access::ReadWrite)]
    );
}
