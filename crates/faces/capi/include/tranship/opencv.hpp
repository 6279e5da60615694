/*
 * OpenCV's matrices in pools ("CBUFs: Efficient, System-Wide Memory Management and Sharing", 2016, section 5.2): an image is born in a
 * pool, is sent by reference, and is an image again where it arrives, over the very same memory. C++11 and newer, OpenCV 4; link with
 * opencv_core.
 *
 *   tranship::MatAllocator images(pool);
 *   cv::Mat frame = images.mat(1080, 1920, CV_8UC3);        or: frame.allocator = &images; frame.create(...)
 *   ... fill it ...
 *   images.send(sender, frame, TRANSHIP_FOREVER);
 *
 *   cv::Mat frame;                                          in another process
 *   tranship::recv(receiver, frame, TRANSHIP_FOREVER);
 *
 * What was sent, and what was received, is to be read only, by all: OpenCV has no matrix that says so. A receiver who writes it ends by
 * SIGSEGV, as the kernel does not let it; a sender who does changes what others are reading. Clone it to change it. Its buffer stays until
 * the last matrix over it is gone, here and there.
 *
 * Several matrices go as one message: images.send(sender, mats, ...) and recv(receiver, mats, ...) with a std::vector<cv::Mat>. Each has
 * its own buffer there, which goes back when the last matrix over it is gone.
 *
 * A part of a matrix (a region, some rows, a reshape) is sent without a copy if it is what is first sent of its buffer. Any other part, and
 * what was not born in a pool, is copied into the pool.
 */
#ifndef TRANSHIP_OPENCV_HPP
#define TRANSHIP_OPENCV_HPP

#include "../tranship.h"
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <opencv2/core.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tranship {

namespace detail {

/* What stands at the end of a buffer: in front of it are, for each dimension, its size and its step. */
struct shape_end {
    uint64_t magic;
    uint64_t offset;
    int32_t type;
    uint32_t dims;
    uint64_t room;
};

enum : uint64_t { shape_magic = UINT64_C(0x74616d2070687374) };
enum : uint32_t { max_dims = 32 }; /* CV_MAX_DIM, which OpenCV's C++ headers do not have */

struct extent {
    uint64_t size;
    uint64_t step;
};

/* A buffer, as matrices have it. */
struct held {
    tranship_buf buf;
    std::mutex sending;
};

/* A buffer that is released at the end of its scope, also by an exception. */
struct scoped {
    tranship_buf buf;

    scoped() : buf()
    {
    }

    scoped(const scoped &) = delete;
    scoped &operator=(const scoped &) = delete;

    ~scoped()
    {
        tranship_release(&buf);
    }
};

/* Matrices outlive the allocator that made them: this one frees them, and makes none. */
class keeper : public cv::MatAllocator
{
  public:
    cv::UMatData *allocate(int dims, const int *sizes, int type, void *data, size_t *step, cv::AccessFlag flags,
                           cv::UMatUsageFlags usage) const override
    {
        return cv::Mat::getStdAllocator()->allocate(dims, sizes, type, data, step, flags, usage);
    }

    bool allocate(cv::UMatData *data, cv::AccessFlag, cv::UMatUsageFlags) const override
    {
        return data != nullptr;
    }

    void deallocate(cv::UMatData *data) const override
    {
        if (data == nullptr)
            return;
        held *has = static_cast<held *>(data->handle);
        tranship_release(&has->buf);
        delete has;
        data->handle = nullptr;
        delete data;
    }

    static const keeper &one()
    {
        static keeper it;
        return it;
    }
};

/* What a matrix lies in; it takes the contents of `buf`. NULL: there is no memory for it, and `buf` is as before. */
inline cv::UMatData *keep(tranship_buf &buf, size_t bytes)
{
    try {
        std::unique_ptr<cv::UMatData> data(new cv::UMatData(&keeper::one()));
        held *has = new held;

        has->buf = buf;
        buf.kind = TRANSHIP_BUF_NONE;
        data->handle = has;
        data->data = data->origdata = static_cast<uchar *>(tranship_data(&has->buf));
        data->size = bytes;
        return data.release();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

/* Whether a matrix of such extents reaches over no more than so many bytes. */
inline bool reach(const std::vector<extent> &extents, uint64_t element, uint64_t bytes)
{
    uint64_t last = 0;

    for (const extent &each : extents) {
        if (each.size == 0)
            return true;
        if (each.step != 0 && each.size - 1 > (bytes - last) / each.step)
            return false;
        last += (each.size - 1) * each.step;
    }
    return element <= bytes - last;
}

inline size_t shape_bytes(size_t dims)
{
    return dims * sizeof(extent) + sizeof(shape_end);
}

inline std::vector<extent> extents_of(const cv::Mat &mat)
{
    std::vector<extent> extents(static_cast<size_t>(mat.dims));

    for (int i = 0; i < mat.dims; i++) {
        extents[static_cast<size_t>(i)].size = static_cast<uint64_t>(mat.size[i]);
        extents[static_cast<size_t>(i)].step = mat.step[i];
    }
    return extents;
}

/* Says at the end of a buffer what is in it. False: there is no room for as many dimensions. */
inline bool write_shape(const tranship_buf &buf, const cv::Mat &mat, uint64_t offset)
{
    std::vector<extent> extents = extents_of(mat);
    char *end = static_cast<char *>(tranship_data(&buf)) + buf.len;
    shape_end shape;

    std::memcpy(&shape, end - sizeof shape, sizeof shape);
    if (extents.size() > shape.room)
        return false;
    shape.offset = offset;
    shape.type = mat.type();
    shape.dims = static_cast<uint32_t>(extents.size());
    std::memcpy(end - sizeof shape, &shape, sizeof shape);
    std::memcpy(end - shape_bytes(extents.size()), extents.data(), extents.size() * sizeof(extent));
    return true;
}

/* Reads it. Each value is copied once, checked, and then used: whoever sent it could change it meanwhile, or lie. */
inline bool read_shape(const tranship_buf &buf, shape_end &shape, std::vector<extent> &extents)
{
    if (buf.len < sizeof shape || tranship_copy_out(&buf, buf.len - sizeof shape, &shape, sizeof shape, NULL) != TRANSHIP_OK)
        return false;
    if (shape.magic != shape_magic || shape.dims < 1 || shape.dims > max_dims || shape.room < shape.dims ||
        shape.room > max_dims || shape_bytes(shape.room) > buf.len || shape.type < 0 || shape.type > CV_MAT_TYPE_MASK)
        return false;
    extents.resize(shape.dims);
    if (tranship_copy_out(&buf, buf.len - shape_bytes(shape.dims), extents.data(), shape.dims * sizeof(extent), NULL) !=
        TRANSHIP_OK)
        return false;
    const uint64_t bytes = buf.len - shape_bytes(shape.room), element = static_cast<uint64_t>(CV_ELEM_SIZE(shape.type));
    if (shape.offset > bytes || shape.offset % static_cast<uint64_t>(CV_ELEM_SIZE1(shape.type)) != 0)
        return false;
    uint64_t inner = element;
    for (size_t i = extents.size(); i-- > 0;) {
        const bool last = i == extents.size() - 1;

        if (extents[i].size > INT32_MAX || extents[i].step % static_cast<uint64_t>(CV_ELEM_SIZE1(shape.type)) != 0 ||
            (last ? extents[i].step != element : extents[i].step < inner))
            return false;
        if (extents[i].size != 0 && extents[i].step > UINT64_MAX / extents[i].size)
            return false;
        inner = extents[i].size * extents[i].step;
    }
    return reach(extents, element, bytes - shape.offset);
}

inline held *held_by(const cv::Mat &mat)
{
    return mat.u != nullptr && mat.u->currAllocator == &keeper::one() ? static_cast<held *>(mat.u->handle) : nullptr;
}

} // namespace detail

/** Whether a matrix lies in a pool: its own process's, or another one's. */
inline bool in_pool(const cv::Mat &mat)
{
    return detail::held_by(mat) != nullptr;
}

/**
 * Has matrices lie in a pool. Any thread. The pool has to stay as long as this, but matrices outlive both. Matrices of less than 4 KiB
 * that OpenCV creates lie in its own memory, because functions create many of them for a moment. They are copied when they are sent.
 */
class MatAllocator : public cv::MatAllocator
{
  public:
    /**
     * Waits for memory for so long; what then is none is OpenCV's StsNoMem, or, in cv::Mat::create, memory of OpenCV's own, which is copied
     * when it is sent.
     */
    explicit MatAllocator(const tranship_pool *pool, int64_t timeout_ns = TRANSHIP_FOREVER) : pool(pool), timeout_ns(timeout_ns)
    {
    }

    /** A matrix in the pool; what is in it at first is whatever that held before. */
    cv::Mat mat(int rows, int cols, int type) const
    {
        const int sizes[] = {rows, cols};
        return mat(2, sizes, type);
    }

    cv::Mat mat(int dims, const int *sizes, int type) const
    {
        std::vector<size_t> steps(static_cast<size_t>(dims));
        cv::UMatData *data = from_pool(dims, sizes, type, steps.data());

        return over(data, dims, sizes, type, steps);
    }

    /**
     * Sends a matrix, which all who have it only read from here on, with a word. One that is not in a pool, and a part of one of which
     * another part was sent, is copied first. Returns, and says in `error`, what tranship_send does, or what tranship_alloc does if there
     * is a copy to be made.
     */
    tranship_status send(tranship_sender *to, const cv::Mat &mat, int64_t timeout_ns, uint64_t word = 0,
                         tranship_error **error = nullptr) const
    {
        tranship_buf sent;
        tranship_status status = shared(mat, timeout_ns, &sent, error);
        if (status != TRANSHIP_OK)
            return status;
        sent.word = word;
        status = tranship_send(to, &sent, timeout_ns, error);
        tranship_release(&sent); /* what was not sent */
        return status;
    }

    /** Sends matrices as one message, an aggregate. At least one, at most 4096. */
    tranship_status send(tranship_sender *to, const std::vector<cv::Mat> &mats, int64_t timeout_ns, uint64_t word = 0,
                         tranship_error **error = nullptr) const
    {
        detail::scoped all;
        tranship_status status = mats.empty() ? TRANSHIP_ERR_BAD_ARGUMENT : tranship_aggregate(pool, &all.buf, error);

        if (status != TRANSHIP_OK)
            return status;
        for (const cv::Mat &mat : mats) {
            detail::scoped piece;

            status = shared(mat, timeout_ns, &piece.buf, error);
            if (status == TRANSHIP_OK)
                status = tranship_aggregate_push_back(&all.buf, &piece.buf, error);
            if (status != TRANSHIP_OK)
                return status;
        }
        all.buf.word = word;
        return tranship_send(to, &all.buf, timeout_ns, error);
    }

    cv::UMatData *allocate(int dims, const int *sizes, int type, void *given, size_t *step, cv::AccessFlag flags,
                           cv::UMatUsageFlags usage) const override
    {
        if (given != nullptr || is_small(dims, sizes, type))
            return cv::Mat::getStdAllocator()->allocate(dims, sizes, type, given, step, flags, usage);
        return from_pool(dims, sizes, type, step);
    }

    bool allocate(cv::UMatData *data, cv::AccessFlag, cv::UMatUsageFlags) const override
    {
        return data != nullptr;
    }

    void deallocate(cv::UMatData *data) const override
    {
        detail::keeper::one().deallocate(data);
    }

  private:
    cv::UMatData *from_pool(int dims, const int *sizes, int type, size_t *step) const
    {
        tranship_error *error = nullptr;
        cv::UMatData *data = nullptr;
        if (born(dims, sizes, type, step, timeout_ns, &data, &error) != TRANSHIP_OK) {
            const std::string why = tranship_error_message(error);
            tranship_error_free(error);
            CV_Error(cv::Error::StsNoMem, why);
        }
        return data;
    }

    /* Memory for a matrix, and its steps. */
    tranship_status born(int dims, const int *sizes, int type, size_t *step, int64_t timeout, cv::UMatData **out,
                         tranship_error **error) const
    {
        size_t bytes = static_cast<size_t>(CV_ELEM_SIZE(type));
        for (int i = dims - 1; i >= 0; i--) {
            if (step != nullptr)
                step[i] = bytes;
            if (sizes[i] < 0 || (sizes[i] != 0 && bytes > SIZE_MAX / 2 / static_cast<size_t>(sizes[i])))
                return TRANSHIP_ERR_TOO_LARGE;
            bytes *= static_cast<size_t>(sizes[i]);
        }
        /* A part may have one dimension more. */
        const size_t room = std::min<size_t>(static_cast<size_t>(dims) + 1, detail::max_dims);
        const size_t aligned = (bytes + 7) / 8 * 8;
        tranship_buf buf;
        tranship_status status = tranship_alloc(pool, aligned + detail::shape_bytes(room), timeout, &buf, error);
        if (status != TRANSHIP_OK)
            return status;
        detail::shape_end shape = {detail::shape_magic, 0, type, 0, room};
        std::memcpy(static_cast<char *>(buf.ptr) + buf.len - sizeof shape, &shape, sizeof shape);
        *out = detail::keep(buf, bytes);
        tranship_release(&buf); /* what was not kept */
        return *out == nullptr ? TRANSHIP_ERR_OUT_OF_MEMORY : TRANSHIP_OK;
    }

    cv::Mat over(cv::UMatData *data, int dims, const int *sizes, int type, const std::vector<size_t> &steps) const
    {
        cv::Mat made(dims, sizes, type, data->data, steps.data());

        data->refcount = 1;
        made.u = data;
        made.allocator = const_cast<MatAllocator *>(this);
        return made;
    }

    /* A handle of a matrix's buffer, to be sent; of a copy if the matrix is not in a pool, or is another part of it than was sent. */
    tranship_status shared(const cv::Mat &mat, int64_t timeout, tranship_buf *out, tranship_error **error) const
    {
        detail::held *has = detail::held_by(mat);

        if (mat.dims == 0 || has == nullptr)
            return shared_copy(mat, timeout, out, error);
        std::unique_lock<std::mutex> one(has->sending);
        const uint64_t offset = static_cast<uint64_t>(mat.data - mat.u->origdata);
        const bool exclusive = has->buf.kind == TRANSHIP_BUF_EXCLUSIVE;
        if (exclusive ? !detail::write_shape(has->buf, mat, offset) : !is_what_was_sent(*has, mat, offset)) {
            one.unlock(); /* a copy may wait for memory, and other threads send the matrix meanwhile */
            return shared_copy(mat, timeout, out, error);
        }
        tranship_status status = exclusive ? tranship_freeze(&has->buf, error) : TRANSHIP_OK;
        return status == TRANSHIP_OK ? tranship_buf_clone(&has->buf, out, error) : status;
    }

    tranship_status shared_copy(const cv::Mat &mat, int64_t timeout, tranship_buf *out, tranship_error **error) const
    {
        if (mat.dims == 0)
            return TRANSHIP_ERR_BAD_ARGUMENT;
        std::vector<size_t> steps(static_cast<size_t>(mat.dims));
        cv::UMatData *data = nullptr;
        tranship_status status = born(mat.dims, mat.size.p, mat.type(), steps.data(), timeout, &data, error);

        if (status != TRANSHIP_OK)
            return status;
        cv::Mat copy = over(data, mat.dims, mat.size.p, mat.type(), steps);
        mat.copyTo(copy);
        return shared(copy, timeout, out, error);
    }

    static bool is_small(int dims, const int *sizes, int type)
    {
        size_t bytes = static_cast<size_t>(CV_ELEM_SIZE(type));

        for (int i = 0; i < dims && bytes < small_bytes; i++)
            bytes *= static_cast<size_t>(sizes[i]);
        return bytes < small_bytes;
    }

    enum : size_t { small_bytes = 4096 };

    static bool is_what_was_sent(const detail::held &has, const cv::Mat &mat, uint64_t offset)
    {
        detail::shape_end shape;
        std::vector<detail::extent> sent, now = detail::extents_of(mat);

        return detail::read_shape(has.buf, shape, sent) && shape.type == mat.type() && shape.offset == offset &&
               sent.size() == now.size() && std::memcmp(sent.data(), now.data(), now.size() * sizeof now[0]) == 0;
    }

    const tranship_pool *pool;
    int64_t timeout_ns;
};

/**
 * A received buffer as a matrix, which has it until the last matrix over it is gone; `buf` then holds nothing. TRANSHIP_ERR_BAD_ARGUMENT,
 * and it has its contents still: it is no matrix that MatAllocator sent.
 */
inline tranship_status mat_of(tranship_buf &buf, cv::Mat &out)
{
    detail::shape_end shape;
    std::vector<detail::extent> extents;

    if ((buf.kind != TRANSHIP_BUF_SHARED && buf.kind != TRANSHIP_BUF_EXCLUSIVE) || !detail::read_shape(buf, shape, extents))
        return TRANSHIP_ERR_BAD_ARGUMENT;
    std::vector<int> sizes(extents.size());
    std::vector<size_t> steps(extents.size());
    for (size_t i = 0; i < extents.size(); i++) {
        sizes[i] = static_cast<int>(extents[i].size);
        steps[i] = static_cast<size_t>(extents[i].step);
    }
    /* First, because it may throw: `buf` then has its contents still. */
    cv::Mat made(static_cast<int>(shape.dims), sizes.data(), shape.type,
                 static_cast<uchar *>(tranship_data(&buf)) + shape.offset, steps.data());
    cv::UMatData *data = detail::keep(buf, static_cast<size_t>(buf.len - detail::shape_bytes(shape.room)));
    if (data == nullptr)
        return TRANSHIP_ERR_OUT_OF_MEMORY;
    data->refcount = 1;
    made.u = data;
    out = std::move(made);
    return TRANSHIP_OK;
}

/**
 * Receives a matrix, and the word that was sent with it. What is no matrix is TRANSHIP_ERR_BAD_ARGUMENT, and gone; for channels with other
 * messages, too: tranship_recv and mat_of.
 */
inline tranship_status recv(tranship_receiver *from, cv::Mat &out, int64_t timeout_ns, uint64_t *word = nullptr,
                            tranship_error **error = nullptr)
{
    detail::scoped one;
    tranship_status status = tranship_recv(from, timeout_ns, &one.buf, error);

    if (status != TRANSHIP_OK)
        return status;
    if (word != nullptr)
        *word = one.buf.word;
    return mat_of(one.buf, out);
}

/**
 * Receives matrices that were sent as one message, also a single one, and their word. What is no message of matrices is
 * TRANSHIP_ERR_BAD_ARGUMENT, and gone; `out` is then as before.
 */
inline tranship_status recv(tranship_receiver *from, std::vector<cv::Mat> &out, int64_t timeout_ns, uint64_t *word = nullptr,
                            tranship_error **error = nullptr)
{
    detail::scoped all;
    tranship_status status = tranship_recv(from, timeout_ns, &all.buf, error);

    if (status != TRANSHIP_OK)
        return status;
    if (word != nullptr)
        *word = all.buf.word;
    std::vector<cv::Mat> mats(all.buf.kind == TRANSHIP_BUF_AGGREGATE ? tranship_aggregate_count(&all.buf) : 1);
    if (all.buf.kind != TRANSHIP_BUF_AGGREGATE) {
        status = mat_of(all.buf, mats[0]);
    } else {
        for (size_t i = 0; i < mats.size() && status == TRANSHIP_OK; i++) {
            detail::scoped piece;

            status = tranship_aggregate_clone_piece(&all.buf, i, &piece.buf, error);
            if (status == TRANSHIP_OK)
                status = mat_of(piece.buf, mats[i]);
        }
    }
    if (status == TRANSHIP_OK)
        out.swap(mats);
    return status;
}

} // namespace tranship

#endif /* TRANSHIP_OPENCV_HPP */
