/* A component's ends, and the panorama's messages over them. */
#ifndef PANORAMA_LINK_HPP
#define PANORAMA_LINK_HPP

#include "pack.hpp"
#include <map>
#include <memory>
#include <opencv2/core/ocl.hpp>
#include <stdexcept>
#include <tranship/component.h>
#include <tranship/opencv.hpp>

namespace panorama {

/* What a stage tells besides the numbers of images: its output is sent. */
enum : int { AT_REST = -2 };

/* The stages, in their order. */
const char *const STAGE_NAMES[] = {"features", "match", "estimate", "wave", "warp", "exposure", "seams", "blend"};

/* A call of the library that failed. */
struct Failed : std::runtime_error {
    tranship_status status;

    Failed(tranship_status status, tranship_error *error) : std::runtime_error(tranship_error_message(error)), status(status)
    {
        tranship_error_free(error);
    }
};

inline void good(tranship_status status, tranship_error *error)
{
    if (status != TRANSHIP_OK)
        throw Failed(status, error);
    tranship_error_free(error);
}

/* A process of the program: a stage's results, and the images that the first component reads, are born in its pool. */
class Link
{
  public:
    explicit Link(int threads)
    {
        tranship_error *error = nullptr;
        tranship_pool_options options = {};

        cv::ocl::setUseOpenCL(false);
        cv::setNumThreads(threads);
        good(tranship_component_connect(&component, &error), error);
        good(tranship_component_domain(component, &domain, &error), error);
        options.size = sizeof options;
        options.name = "mats";
        options.slots = SLOTS;
        options.chunk_bytes = CHUNK_BYTES;
        options.keep_bytes = POOL_BYTES; /* the next panorama's results are as large */
        good(tranship_pool_create(domain, POOL_BYTES, &options, &pool, &error), error);
        images.reset(new tranship::MatAllocator(pool));
        results = images.get();
    }

    ~Link()
    {
        results = nullptr;
        for (auto &each : senders)
            tranship_sender_close(each.second);
        for (auto &each : receivers)
            tranship_receiver_close(each.second);
        tranship_pool_close(pool);
        tranship_domain_close(domain);
        tranship_component_close(component);
    }

    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    /* The ends wait for the other process. All components open their channels in one order, or they would wait for each other. */
    void open_sender(const std::string &name)
    {
        tranship_error *error = nullptr;
        good(tranship_component_sender(component, name.c_str(), TRANSHIP_FOREVER, &senders[name], &error), error);
    }

    void open_receiver(const std::string &name)
    {
        tranship_error *error = nullptr;
        good(tranship_component_receiver(component, name.c_str(), TRANSHIP_FOREVER, &receivers[name], &error), error);
    }

    tranship_sender *sender(const std::string &name) const
    {
        return senders.at(name);
    }

    tranship_receiver *receiver(const std::string &name) const
    {
        return receivers.at(name);
    }

    void ready() const
    {
        tranship_error *error = nullptr;
        good(tranship_component_ready(component, &error), error);
    }

    /* Sends values as one message, of which each matrix goes by reference. */
    template <class... T> void send(const std::string &name, const T &...values) const
    {
        tranship_error *error = nullptr;
        Packer packer;

        (fields(packer, values), ...);
        packer.done();
        good(images->send(sender(name), packer.mats, TRANSHIP_FOREVER, 0, &error), error);
    }

    template <class... T> void recv(const std::string &name, T &...values) const
    {
        tranship_error *error = nullptr;
        std::vector<cv::Mat> mats;

        good(tranship::recv(receiver(name), mats, TRANSHIP_FOREVER, nullptr, &error), error);
        Unpacker unpacker(mats);
        (fields(unpacker, values), ...);
    }

    /* Says at which image a stage is. */
    void tell(const std::string &name, int image) const
    {
        tranship_error *error = nullptr;
        good(tranship_send_bytes(sender(name), &image, sizeof image, 0, TRANSHIP_FOREVER, &error), error);
    }

    /* A receiver then learns that this end did not finish its work. */
    void abandon()
    {
        for (auto &each : senders)
            tranship_sender_abandon(each.second);
        senders.clear();
    }

  private:
    /* Addresses, not memory. A slot is a matrix; small ones take one, too. */
    enum : uint64_t { POOL_BYTES = UINT64_C(1) << 30 };
    /* Far below the size of an image, so that little of its last chunk is left over. */
    enum : uint64_t { CHUNK_BYTES = UINT64_C(512) << 10 };
    enum : uint32_t { SLOTS = 8192 };

    tranship_component *component = nullptr;
    tranship_domain *domain = nullptr;
    tranship_pool *pool = nullptr;
    std::unique_ptr<tranship::MatAllocator> images;
    std::map<std::string, tranship_sender *> senders;
    std::map<std::string, tranship_receiver *> receivers;
};

} // namespace panorama

#endif
