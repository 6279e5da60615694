//! Figures of the manager, as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tranship::admin::{Got, LeakReport, StatRecord};

macro_rules! put {
    ($to:ident, $from:ident: $($field:ident),+ $(,)?) => {
        $($to.set_item(stringify!($field), $from.$field)?;)+
    };
}

/// Returns lists by the kind of record; of the manager there is one.
pub(crate) fn dict(py: Python<'_>, records: Vec<StatRecord>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("manager", py.None())?;
    for list in ["domains", "pools", "channels", "holds", "heaps"] {
        all.set_item(list, PyList::empty(py))?;
    }
    for record in records {
        let (list, entry) = entry(py, record)?;
        match all.get_item(list)? {
            Some(list) if list.is_instance_of::<PyList>() => {
                list.call_method1("append", (entry,))?;
            }
            _ => all.set_item(list, entry)?,
        }
    }
    Ok(all)
}

/// Buffers that a domain has.
pub(crate) fn leaks<'py>(py: Python<'py>, report: &LeakReport) -> PyResult<Bound<'py, PyDict>> {
    let got = |to: &Bound<'py, PyDict>, got: Option<&Got>| {
        to.set_item("age", got.map(|g| g.age.as_secs_f64()))?;
        let channel = got.and_then(|g| g.channel.as_ref());
        to.set_item("channel", channel.map(|(_, name)| name))?;
        to.set_item("backtrace", got.and_then(|g| g.backtrace.as_ref()))
    };
    let (held, own) = (PyList::empty(py), PyList::empty(py));
    for of in &report.held {
        let to = PyDict::new(py);
        (to.set_item("pool", of.pool.0)).and(to.set_item("writer", of.writer.0))?;
        to.set_item("id", of.id.0)?;
        put!(to, of: bytes, handles);
        got(&to, of.got.as_ref())?;
        held.append(to)?;
    }
    for of in &report.own {
        let to = PyDict::new(py);
        (to.set_item("pool", of.pool.0)).and(to.set_item("pool_name", &of.pool_name))?;
        to.set_item("id", of.id.0)?;
        put!(to, of: bytes);
        got(&to, Some(&of.got))?;
        own.append(to)?;
    }
    let all = PyDict::new(py);
    all.set_item("held", held)?;
    all.set_item("own", own)?;
    Ok(all)
}

fn entry(py: Python<'_>, record: StatRecord) -> PyResult<(&'static str, Bound<'_, PyDict>)> {
    let to = PyDict::new(py);
    let list = match record {
        StatRecord::Manager(of) => {
            put!(to, of: instance, pid, uptime_s, total_bytes, granted_bytes, stranded_bytes);
            put!(to, of: data_bytes, table_bytes, ring_bytes, control_page_bytes);
            put!(to, of: descriptors, max_descriptors, own_bytes_per_user, longest_turn_us);
            put!(to, of: limit_bytes);
            to.set_item("pressure", of.pressure.name())?;
            "manager"
        }
        StatRecord::Domain(of) => {
            to.set_item("domain", of.domain.0)?;
            put!(to, of: name, pid, uid, connected, dumpable, stranded_bytes);
            put!(to, of: data_bytes, table_bytes, ring_bytes, own_bytes, lingering_bytes);
            let hog = of.hog.map(|hog| {
                let to = PyDict::new(py);
                to.set_item("action", hog.action.name())?;
                put!(to, hog: over_bytes, since_ms);
                PyResult::Ok(to)
            });
            to.set_item("hog", hog.transpose()?)?;
            "domains"
        }
        StatRecord::Pool(of) => {
            to.set_item("pool", of.pool.0)?;
            to.set_item("writer", of.writer.0)?;
            to.set_item("trust", of.trust.name())?;
            put!(to, of: name, writer_alive, max_bytes, quota_bytes, granted_bytes);
            put!(to, of: stranded_bytes, data_bytes, table_bytes, chunk_bytes, slots, readers);
            put!(to, of: live_bytes, garbage_bytes, cached_bytes, padding_bytes, lingering_bytes);
            "pools"
        }
        StatRecord::Channel(of) => {
            to.set_item("channel", of.channel.0)?;
            to.set_item("source", of.source.map(|domain| domain.0))?;
            to.set_item("sink", of.sink.map(|domain| domain.0))?;
            let pools: Vec<u32> = of.pools.iter().map(|pool| pool.0).collect();
            to.set_item("pools", pools)?;
            put!(to, of: name, taken, lines, ring_bytes, place);
            "channels"
        }
        StatRecord::Hold(of) => {
            to.set_item("domain", of.domain.0)?;
            to.set_item("pool", of.pool.0)?;
            put!(to, of: buffers, bytes, lingering_bytes, held_ms);
            "holds"
        }
        StatRecord::Heap(of) => {
            to.set_item("heap", of.heap.0)?;
            to.set_item("owner", of.owner.0)?;
            put!(to, of: name, max_bytes, quota_bytes, admitted_bytes);
            put!(to, of: live_bytes, cached_bytes);
            "heaps"
        }
    };
    Ok((list, to))
}
