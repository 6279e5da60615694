"""Services."""

import asyncio
import os
import threading

import pytest
from conftest import apart, until

import tranship


@pytest.fixture
def service(domain):
    with domain.serve("double") as service:
        yield service


@pytest.fixture
def client(service, other):
    connecting = apart(other.client, "double")
    while connecting.is_alive():
        assert service.try_recv() is None
    with connecting.result() as client:
        yield client


def working(service, *, times=1):
    """Answers in another thread: with the double of each byte, or with an error for a request without bytes."""

    def work():
        for _ in range(times):
            with service.recv() as request:
                if not request.payload.nbytes:
                    request.fail(b"nothing to double")
                    continue
                answer = request.alloc(request.payload.nbytes)
                memoryview(answer)[:] = bytes(2 * byte for byte in bytes(request.payload))
                request.reply(answer)

    return apart(work)


def test_a_call_has_an_answer_by_reference(service, client):
    worker = working(service, times=2)
    request = client.alloc(100_000)
    memoryview(request)[:] = bytes([21]) * 100_000
    answer = client.call(request)
    assert (answer.nbytes, answer[0], answer[-1], answer.readonly) == (100_000, 42, 42, True)
    assert bytes(client.call(b"\1\2", timeout=120)) == b"\2\4"
    worker.result()


def test_an_error_of_the_services_own_has_its_answer(service, client):
    worker = working(service)
    with pytest.raises(tranship.ServiceFailed, match="the service failed: nothing to double") as failed:
        client.call(b"")
    assert bytes(failed.value.answer) == b"nothing to double"
    assert (failed.value.kind, isinstance(failed.value, RuntimeError)) == ("Refused", True)
    worker.result()


def test_a_request_knows_its_client_and_its_time(service, client):
    call = client.begin(b"x", timeout=3600, method=7)
    with service.recv(timeout=120) as request:
        assert (request.method, request.client_pid, request.client_uid) == (7, os.getpid(), os.getuid())
        assert 0 < request.left <= 3600
        assert not request.is_cancelled
        assert bytes(request.payload) == b"x"
        request.reply(b"y")
        with pytest.raises(ValueError, match="was answered"):
            request.reply(b"z")
    assert bytes(call.wait()) == b"y"
    with pytest.raises(ValueError, match="the call is closed"):
        call.wait()


def test_calls_in_flight_are_answered_in_any_order(service, client):
    calls = [client.begin(b"%d" % number) for number in range(3)]
    requests = [service.recv() for _ in range(3)]
    for request in reversed(requests):
        request.reply(bytes(request.payload) + b"!")
    assert [bytes(call.wait(120)) for call in calls] == [b"0!", b"1!", b"2!"]
    assert client.in_flight == 0


def test_what_is_not_answered_fails(service, client):
    call = client.begin(b"x")
    service.recv().close()
    with pytest.raises(tranship.PeerDied, match="let the request go without an answer"):
        call.wait()
    with pytest.raises(tranship.TimedOut, match="service `double` has not answered"):
        client.call(b"x", timeout=0.02)
    cancelled = client.begin(b"y")
    with pytest.raises(tranship.TimedOut):
        cancelled.wait(timeout=0.01)
    request = service.recv()
    assert bytes(request.payload) == b"y" and not request.is_cancelled
    cancelled.close()
    until(lambda: request.is_cancelled)


def test_a_service_that_ends_ends_its_calls(service, client):
    call = client.begin(b"x")
    service.close()
    with pytest.raises((tranship.PeerGone, tranship.PeerDied), match="service `double`"):
        call.wait()
    with pytest.raises(tranship.PeerGone):
        client.call(b"x")
    with pytest.raises(ValueError, match="the service is closed"):
        service.recv()


def test_a_worker_process_that_dies_is_named(domain, peer):
    there = peer("""
service = domain.serve("mortal")
say("there")
request = service.recv()
say("taken")
hear()
""")
    there.hear()
    client = domain.client("mortal", timeout=120)
    call = client.begin(b"x")
    assert there.hear() == "taken"
    there.kill()
    with pytest.raises(tranship.PeerDied, match=f"service `mortal` .domain .*, process {there.process.pid}. died"):
        call.wait()


def test_nobody_serves(domain):
    with pytest.raises(tranship.TimedOut, match="no domain offers `nobody`"):
        domain.client("nobody", timeout=0.02)
    with domain.serve("taken"), pytest.raises(tranship.NameTaken):
        domain.serve("taken")


def test_types_are_compared(domain, other):
    with domain.serve("typed", types=("a\n", "b\n")) as service:

        def meeting(**options):
            connecting = apart(other.client, "typed", **options)
            while connecting.is_alive():
                service.try_recv()
            return connecting.result()

        with pytest.raises(tranship.Error, match="bytes without a type here"):
            meeting()
        with pytest.raises(tranship.Error, match="`c` here and `b` at the other end"):
            meeting(types=("a\n", "c\n"))
        meeting(types=("a\n", "b\n")).close()


def test_calls_and_requests_are_awaited(domain, other):
    async def main():
        with domain.serve("local:double") as service:

            async def work():
                async for request in service:
                    request.reply(bytes(2 * byte for byte in bytes(request.payload)))

            worker = asyncio.create_task(work())
            client = await domain.client_async("local:double")
            answers = await asyncio.gather(*[client.call_async(bytes([number])) for number in range(20)])
            assert [answer[0] for answer in answers] == [2 * number for number in range(20)]
            call = client.begin(b"\5")
            assert bytes(await call.wait_async()) == b"\n"
            worker.cancel()
            client.close()

    asyncio.run(main())


def test_threads_share_a_service_and_a_client(service, client):
    workers = [working(service, times=25) for _ in range(4)]
    sums = []

    def ask():
        sums.append(sum(client.call(bytes([number]))[0] for number in range(25)))

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for worker in workers:
        worker.result()
    assert sums == [600] * 4


def counting(service):
    """Answers one call: each item doubled, and the number of items."""

    def work():
        with service.recv() as request:
            items = 0
            for item in request:
                answer = request.alloc(item.nbytes)
                memoryview(answer)[:] = bytes(2 * byte for byte in bytes(item))
                request.send(answer)
                items += 1
            request.reply(b"%d" % items)

    return apart(work)


def test_items_go_either_way_before_the_answer(service, client):
    worker = counting(service)
    with client.begin(b"begin", streams=True) as call:
        with pytest.raises(tranship.TimedOut):
            call.recv(timeout=0.02)
        for number in range(20):
            item = client.alloc(3000)
            memoryview(item)[:] = bytes([number]) * 3000
            call.send(item, move=number % 2 == 0)
            got = call.recv()
            assert (got.nbytes, got[0]) == (3000, 2 * number)
        call.finish()
        assert list(call) == []
        assert bytes(call.wait()) == b"20"
    worker.result()


def test_a_call_without_streams_has_no_items(service, client):
    with client.begin(b"x") as call, service.recv() as request:
        with pytest.raises(tranship.BadArgument, match="without streams"):
            call.send(b"y")
        with pytest.raises(tranship.BadArgument, match="without streams"):
            request.recv(timeout=120)
        request.reply(b"z")
        assert bytes(call.wait()) == b"z"


def test_closing_a_call_ends_its_waits_and_its_worker(service, client):
    call = client.begin(b"x", streams=True)
    with service.recv() as request:
        waits = apart(call.recv)
        until(lambda: waits.is_alive())
        with pytest.raises(RuntimeError, match="another thread or task"):
            until(lambda: call.wait(timeout=0) and False)
        call.close()
        with pytest.raises(ValueError, match="the call is closed"):
            waits.result()
        with pytest.raises(tranship.PeerGone, match="no caller waits"):
            request.recv()


def test_items_are_awaited(service, client):
    async def worker():
        request = await service.recv_async()
        items = [bytes(item) async for item in request]
        await request.send_async(b"%d items" % len(items))
        request.reply(b"".join(items))

    async def main():
        works = asyncio.create_task(worker())
        call = client.begin(b"x", streams=True)
        for part in (b"one", b"two"):
            await call.send_async(part)
        call.finish()
        said = [bytes(item) async for item in call]
        assert await call.recv_async() is None
        answer = bytes(await call.wait_async())
        await works
        return said, answer

    assert asyncio.run(main()) == ([b"2 items"], b"onetwo")


def test_several_processes_serve_a_shared_name(domain, peer):
    there = peer("""
with domain.serve("many", shared=True) as service:
    say("there")
    while True:
        with service.recv() as request:
            request.reply(b"%d" % os.getpid())
""")
    there.hear()
    with pytest.raises(tranship.NameTaken):
        domain.serve("many")
    with domain.serve("many", shared=True) as service:
        with tranship.connect("caller", socket=domain.socket_path) as caller:
            connecting = apart(caller.client, "many")
            while connecting.is_alive():
                service.try_recv()
            with connecting.result() as client:
                until(lambda: service.try_recv() is None and client.workers == 2)
                calls = [client.begin(b"x") for _ in range(2)]
                with service.recv() as request:
                    request.reply(b"%d" % os.getpid())
                assert {int(bytes(call.wait())) for call in calls} == {os.getpid(), there.process.pid}
