/* Images born in a pool, sent and received: "images send" and "images receive", of the same manager. Both say of each where it lies:
 * inode and place in the memfd; a test compares. */
#include "check.h"
#include <csignal>
#include <cstring>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <tranship/opencv.hpp>
#include <unistd.h>
#include <vector>

#define OK(call) EXPECT(call, TRANSHIP_OK)

/* Where an address lies: of what file, and where in it. */
static std::string place(const void *address)
{
    const unsigned long at = reinterpret_cast<unsigned long>(address);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];

    THERE(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end, offset, inode;

        EXPECT(sscanf(line, "%lx-%lx %*s %lx %*s %lu", &begin, &end, &offset, &inode), 4);
        if (begin <= at && at < end) {
            std::ostringstream said;

            fclose(maps);
            said << inode << ":" << offset + (at - begin);
            return said.str();
        }
    }
    exit(2);
}

static void say(const char *what, const cv::Mat &mat)
{
    const cv::Scalar sum = cv::sum(mat.reshape(1));

    printf("%s %s dims %d rows %d type %d sum %.0f\n", what, place(mat.data).c_str(), mat.dims, mat.rows, mat.type(), sum[0]);
}

static void fill(cv::Mat &mat, int seed)
{
    cv::RNG numbers(static_cast<uint64_t>(seed));

    numbers.fill(mat, cv::RNG::UNIFORM, 0, 200);
}

/* A buffer that says it is a matrix, and is not. */
static void lie(tranship_pool *pool, tranship_sender *to, uint64_t offset, int32_t type, uint32_t dims, uint64_t room, uint64_t rows,
                uint64_t row_step, uint64_t step)
{
    tranship::detail::shape_end shape = {tranship::detail::shape_magic, offset, type, dims, room};
    tranship::detail::extent extents[2] = {{rows, row_step}, {10, step}};
    tranship_buf buf;

    OK(tranship_alloc(pool, 4096, TRANSHIP_FOREVER, &buf, NULL));
    std::memset(buf.ptr, 0, buf.len);
    std::memcpy(static_cast<char *>(buf.ptr) + buf.len - sizeof shape, &shape, sizeof shape);
    std::memcpy(static_cast<char *>(buf.ptr) + buf.len - sizeof shape - sizeof extents, extents, sizeof extents);
    OK(tranship_freeze(&buf, NULL));
    OK(tranship_send(to, &buf, TRANSHIP_FOREVER, NULL));
}

enum { LIES = 10, STREAM = 100 };

static void lies(tranship_pool *pool, tranship_sender *to)
{
    lie(pool, to, 0, CV_8UC1, 2, 1, 10, 10, 1);                    /* more dimensions than room */
    lie(pool, to, 0, CV_8UC1, 40, 40, 10, 10, 1);                  /* more than there can be */
    lie(pool, to, 0, CV_8UC1, 0, 2, 10, 10, 1);                    /* none */
    lie(pool, to, 0, 1 << 20, 2, 2, 10, 10, 1);                    /* no type */
    lie(pool, to, 4080, CV_8UC1, 2, 2, 10, 10, 1);                 /* outside */
    lie(pool, to, 0, CV_8UC1, 2, 2, 1000, 10, 1);                  /* longer than the buffer */
    lie(pool, to, 0, CV_8UC1, 2, 2, 10, UINT64_MAX - 8, 1);        /* a step that turns round */
    lie(pool, to, 0, CV_8UC1, 2, 2, 10, 9, 1);                     /* rows that overlap */
    lie(pool, to, 0, CV_8UC1, 2, 2, UINT64_C(1) << 32, 10, 1);     /* more rows than an int has */
    lie(pool, to, 2, CV_32FC1, 2, 2, 10, 40, 4);                   /* not aligned */
}

/* A message of several pieces, of which only the first is a matrix. */
static void no_images(tranship_pool *pool, tranship_sender *to)
{
    const tranship::detail::extent extents[2] = {{4, 4}, {4, 1}};
    const tranship::detail::shape_end shape = {tranship::detail::shape_magic, 0, CV_8UC1, 2, 2};
    tranship_buf all, piece;

    OK(tranship_aggregate(pool, &all, NULL));
    for (int i = 0; i < 2; i++) {
        OK(tranship_alloc(pool, 128, TRANSHIP_FOREVER, &piece, NULL));
        std::memset(piece.ptr, 0, piece.len);
        if (i == 0) {
            std::memcpy(static_cast<char *>(piece.ptr) + piece.len - sizeof shape, &shape, sizeof shape);
            std::memcpy(static_cast<char *>(piece.ptr) + piece.len - sizeof shape - sizeof extents, extents, sizeof extents);
        }
        OK(tranship_aggregate_push_back(&all, &piece, NULL));
    }
    OK(tranship_send(to, &all, TRANSHIP_FOREVER, NULL));
}

static void send_all(tranship_domain *domain)
{
    const int sizes[] = {4, 5, 6};
    tranship_pool *pool, *small;
    tranship_listener *listener;
    tranship_sender *to;

    OK(tranship_pool_create(domain, 64 << 20, NULL, &pool, NULL));
    OK(tranship_pool_create(domain, 8 << 20, NULL, &small, NULL));
    OK(tranship_listen(domain, "images", TRANSHIP_SENDER, NULL, &listener, NULL));
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &to, NULL));
    cv::Mat kept;
    {
        tranship::MatAllocator images(pool);
        cv::Mat frame = images.mat(1080, 1920, CV_8UC3), whole, solid, foreign(300, 400, CV_16SC2), late;

        EXPECT(tranship::in_pool(frame), 1);
        EXPECT(frame.isContinuous(), 1);
        EXPECT(reinterpret_cast<size_t>(frame.data) % 16, 0);
        fill(frame, 1);
        say("frame", frame);
        OK(images.send(to, frame, TRANSHIP_FOREVER, 7));
        say("frame", frame); /* once more, the same */
        OK(images.send(to, frame, TRANSHIP_FOREVER, 8));
        whole.allocator = &images;
        whole.create(480, 640, CV_8UC1); /* as OpenCV's own functions do it */
        EXPECT(tranship::in_pool(whole), 1);
        fill(whole, 2);
        cv::Mat part = whole(cv::Rect(100, 50, 64, 32));
        say("part", part);
        OK(images.send(to, part, TRANSHIP_FOREVER));
        say("copy", whole); /* of which a part was sent */
        OK(images.send(to, whole, TRANSHIP_FOREVER));
        late.allocator = &images;
        late.create(31, 33, CV_32FC1); /* small: not in the pool, unless it is asked for */
        EXPECT(tranship::in_pool(late), 0);
        EXPECT(tranship::in_pool(images.mat(31, 33, CV_32FC1)), 1);
        late.create(32, 32, CV_32FC1);
        EXPECT(tranship::in_pool(late), 1);
        solid = images.mat(3, sizes, CV_32FC1);
        fill(solid, 3);
        say("solid", solid);
        OK(images.send(to, solid, TRANSHIP_FOREVER));
        EXPECT(tranship::in_pool(foreign), 0);
        fill(foreign, 4);
        say("copy", foreign);
        OK(images.send(to, foreign, TRANSHIP_FOREVER));
        EXPECT(images.send(to, cv::Mat(), TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT);
        /* Several as one message: sent before, from outside, and new. */
        std::vector<cv::Mat> many = {frame, foreign, images.mat(20, 30, CV_64FC1)};
        fill(many[2], 5);
        say("frame", many[0]);
        say("copy", many[1]);
        say("frame", many[2]);
        OK(images.send(to, many, TRANSHIP_FOREVER, 9));
        OK(images.send(to, frame, TRANSHIP_FOREVER));
        EXPECT(images.send(to, std::vector<cv::Mat>(), TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT);
        many[1] = cv::Mat();
        EXPECT(images.send(to, many, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT);
        kept = whole.rowRange(1, 3);
    }
    EXPECT(kept.rows, 2);
    kept = kept.clone(); /* its allocator is gone, and its buffer was not */
    OK(tranship_send_bytes(to, "no image", 8, 0, TRANSHIP_FOREVER, NULL));
    no_images(pool, to);
    OK(tranship_send_bytes(to, "no image", 8, 0, TRANSHIP_FOREVER, NULL));
    lies(pool, to);
    /* More than fits: each goes when both ends have let it go. */
    tranship::MatAllocator images(small);
    for (int i = 0; i < STREAM; i++) {
        cv::Mat frame = images.mat(1024, 1024, CV_8UC2);

        frame.setTo(cv::Scalar(i, i));
        OK(images.send(to, frame, TRANSHIP_FOREVER));
    }
    /* What can never be had: OpenCV's own memory instead, or an exception. */
    cv::Mat large;
    large.allocator = &images;
    large.create(1 << 14, 1 << 14, CV_8UC1);
    EXPECT(tranship::in_pool(large), 0);
    try {
        images.mat(1 << 14, 1 << 14, CV_8UC1);
        exit(3);
    } catch (const cv::Exception &what) {
        EXPECT(what.code, cv::Error::StsNoMem);
    }
    EXPECT(images.send(to, large, TRANSHIP_NOW), TRANSHIP_ERR_TOO_LARGE);
    tranship_sender_close(to);
    tranship_listener_close(listener);
    tranship_pool_close(pool);
    tranship_pool_close(small);
}

static void receive_all(tranship_domain *domain)
{
    static const char *const names[] = {"frame", "frame", "part", "copy", "solid", "copy"};
    tranship_receiver *from;
    uint64_t word = 0;
    cv::Mat mat, kept, row;
    pid_t child;
    int status;

    OK(tranship_open_receiver(domain, "images", NULL, TRANSHIP_FOREVER, &from, NULL));
    for (int i = 0; i < 6; i++) {
        OK(tranship::recv(from, mat, TRANSHIP_FOREVER, &word));
        EXPECT(tranship::in_pool(mat), 1);
        say(names[i], mat);
        if (i == 0) {
            EXPECT(word, 7);
            kept = mat;
        }
    }
    EXPECT(word, 0);
    std::vector<cv::Mat> many;
    OK(tranship::recv(from, many, TRANSHIP_FOREVER, &word));
    EXPECT(word, 9);
    EXPECT(many.size(), 3);
    for (size_t i = 0; i < many.size(); i++)
        say(i == 1 ? "copy" : "frame", many[i]);
    row = many[0].row(500);
    OK(tranship::recv(from, many, TRANSHIP_FOREVER, &word)); /* a single one */
    EXPECT(many.size(), 1);
    EXPECT(many[0].rows, 1080);
    many.clear();
    kept.release();
    mat.release();
    /* The kernel keeps who received it from writing. */
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's would say what is wanted */
        row.data[0] = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, 1);
    EXPECT(tranship::recv(from, mat, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT); /* inline */
    EXPECT(tranship::recv(from, many, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT); /* one of two is none */
    EXPECT(many.empty(), 1);
    EXPECT(tranship::recv(from, many, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT); /* inline */
    for (int i = 0; i < LIES; i++)
        EXPECT(tranship::recv(from, mat, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(mat.empty(), 1);
    for (int i = 0; i < STREAM; i++) {
        OK(tranship::recv(from, mat, TRANSHIP_FOREVER));
        EXPECT(mat.at<cv::Vec2b>(1023, 1023)[1], i);
    }
    mat = cv::Mat();
    EXPECT(tranship::recv(from, mat, TRANSHIP_FOREVER), TRANSHIP_ERR_PEER_GONE);
    tranship_receiver_close(from);
    tranship_domain_close(domain);
    printf("row %.0f\n", cv::sum(row.reshape(1))[0]); /* stays when all else is gone */
}

int main(int argc, char **argv)
{
    tranship_domain *domain;

    OK(tranship_connect(NULL, &domain, NULL));
    if (argc == 2 && std::strcmp(argv[1], "send") == 0) {
        send_all(domain);
        tranship_domain_close(domain);
        return 0;
    }
    receive_all(domain);
    return 0;
}
