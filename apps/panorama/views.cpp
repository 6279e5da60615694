/* Cuts a photograph into overlapping views, as a camera that turns would take them: "views PHOTO FOLDER [WIDTH]". The truth, each
 * view's focal length, angles and exposure, goes to FOLDER/truth.txt. */
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

static cv::Matx33d turn(double yaw, double pitch)
{
    const double a = yaw * CV_PI / 180, b = pitch * CV_PI / 180;
    const cv::Matx33d across(std::cos(a), 0, std::sin(a), 0, 1, 0, -std::sin(a), 0, std::cos(a));
    const cv::Matx33d up(1, 0, 0, 0, std::cos(b), -std::sin(b), 0, std::sin(b), std::cos(b));
    return across * up;
}

static cv::Matx33d lens(double focal, cv::Size size)
{
    return {focal, 0, size.width / 2.0, 0, focal, size.height / 2.0, 0, 0, 1};
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "usage: views PHOTO FOLDER [WIDTH]\n";
        return 2;
    }
    const cv::Mat photo = cv::imread(argv[1]);
    const std::string folder = argv[2];
    const int width = argc > 3 ? std::atoi(argv[3]) : 1600;
    if (photo.empty() || width < 100) {
        std::cerr << "views: " << argv[1] << " is no photograph, or the width is below 100 pixels\n";
        return 1;
    }
    /* The photograph as the flat picture of a camera that looks straight ahead, 66 degrees wide. */
    const cv::Matx33d from = lens(photo.cols / 1.3, photo.size());
    const cv::Size size(width, width * 3 / 4);
    const double focal = width * 1.7; /* 33 degrees */
    const double yaws[] = {-15, 0, 15}, pitches[] = {-6, 6}, exposures[] = {1, 0.85, 0.95, 0.9, 1, 0.8};
    std::ofstream truth(folder + "/truth.txt");
    int number = 0;

    for (double pitch : pitches)
        for (double yaw : yaws) {
            const cv::Matx33d map = from * turn(yaw, pitch) * lens(focal, size).inv();
            cv::Mat view;

            cv::warpPerspective(photo, view, map, size, cv::INTER_CUBIC | cv::WARP_INVERSE_MAP);
            view.convertTo(view, -1, exposures[number]);
            cv::imwrite(folder + "/" + std::to_string(number) + ".png", view, {cv::IMWRITE_PNG_COMPRESSION, 1});
            truth << focal << " " << yaw << " " << pitch << " " << exposures[number] << "\n";
            number++;
        }
    return truth.good() ? 0 : 1;
}
