/* An image that is born in a pool and is seen by another process where it lies: "image send" in one terminal, "image receive" in
 * another. Link with opencv_core. */
#include <cstdio>
#include <cstring>
#include <tranship/opencv.hpp>

static int failed(tranship_error *error)
{
    std::fprintf(stderr, "image: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    return 1;
}

static int send(tranship_domain *domain)
{
    tranship_error *error = nullptr;
    tranship_pool *pool = nullptr;
    tranship_listener *listener = nullptr;
    tranship_sender *sender = nullptr;

    if (tranship_pool_create(domain, 64 << 20, nullptr, &pool, &error) != TRANSHIP_OK ||
        tranship_listen(domain, "images", TRANSHIP_SENDER, nullptr, &listener, &error) != TRANSHIP_OK ||
        tranship_accept_sender(listener, TRANSHIP_FOREVER, &sender, &error) != TRANSHIP_OK)
        return failed(error);
    tranship::MatAllocator images(pool);
    cv::Mat frame = images.mat(1080, 1920, CV_8UC3);
    frame.setTo(cv::Scalar(10, 20, 30));
    if (images.send(sender, frame, TRANSHIP_FOREVER, 7, &error) != TRANSHIP_OK)
        return failed(error);
    tranship_sender_close(sender);
    tranship_listener_close(listener);
    tranship_pool_close(pool);
    return 0;
}

static int receive(tranship_domain *domain)
{
    tranship_error *error = nullptr;
    tranship_receiver *receiver = nullptr;
    uint64_t word = 0;
    cv::Mat frame; /* to be read only */

    if (tranship_open_receiver(domain, "images", nullptr, TRANSHIP_FOREVER, &receiver, &error) != TRANSHIP_OK)
        return failed(error);
    while (tranship::recv(receiver, frame, TRANSHIP_FOREVER, &word, &error) == TRANSHIP_OK) {
        const cv::Scalar mean = cv::mean(frame);
        std::printf("%d x %d, word %d: %.0f %.0f %.0f\n", frame.cols, frame.rows, static_cast<int>(word), mean[0], mean[1], mean[2]);
    }
    if (tranship_error_status(error) != TRANSHIP_ERR_PEER_GONE)
        return failed(error);
    tranship_error_free(error);
    tranship_receiver_close(receiver);
    return 0;
}

int main(int argc, char **argv)
{
    tranship_error *error = nullptr;
    tranship_domain *domain = nullptr;

    if (tranship_connect(nullptr, &domain, &error) != TRANSHIP_OK)
        return failed(error);
    const int status = argc > 1 && std::strcmp(argv[1], "send") == 0 ? send(domain) : receive(domain);
    tranship_domain_close(domain);
    return status;
}
